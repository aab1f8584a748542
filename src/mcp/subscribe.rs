//! Subscriptions to resources, in both protocol eras. They belong to a connection and end with it.

use super::resources;
use super::server::{Server, blocking};
use super::tool::Fault;
use rmcp::RoleServer;
use rmcp::model::{ResourceUpdatedNotificationParam, SubscriptionFilter};
use rmcp::service::{Peer, SubscriptionContext};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio_util::sync::CancellationToken;

/// The subscriptions of a client of the older protocol, by address.
#[derive(Clone, Default)]
pub struct Subscriptions {
    active: Arc<Mutex<HashMap<String, CancellationToken>>>,
}

impl Subscriptions {
    /// Begins to tell the client when a resource changes. A second subscription to one is the first.
    pub async fn add(&self, server: &Server, uri: String, peer: Peer<RoleServer>) -> Result<(), Fault> {
        let mut news = News::of(server, vec![uri.clone()]).await?;
        let ended = CancellationToken::new();
        let old = self.lock().insert(uri, ended.clone());
        if let Some(old) = old {
            old.cancel();
        }
        let gone = server.gone().clone();
        tokio::spawn(async move {
            loop {
                let changed = tokio::select! {
                    changed = news.next() => changed,
                    () = ended.cancelled() => return,
                    () = gone.cancelled() => return,
                };
                let Ok(changed) = changed else { return };
                for uri in changed {
                    #[allow(deprecated, reason = "clients of the older protocol know nothing else")]
                    let told = peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(uri)).await;
                    if told.is_err() {
                        return;
                    }
                }
            }
        });
        Ok(())
    }

    /// Stops telling.
    pub fn remove(&self, uri: &str) {
        if let Some(ended) = self.lock().remove(uri) {
            ended.cancel();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, CancellationToken>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The part of a filter that we can serve: resources that are tasks.
pub fn accepted(requested: &SubscriptionFilter) -> SubscriptionFilter {
    let uris = requested.resource_subscriptions.iter().flatten();
    SubscriptionFilter::builder()
        .resource_subscriptions(uris.filter(|uri| resources::parse(uri).is_some()).cloned())
        .build()
}

/// Tells a client of the newer protocol of changes until it has had enough.
pub async fn listen(server: &Server, context: &SubscriptionContext) {
    let uris = context.accepted().resource_subscriptions.clone().unwrap_or_default();
    let Ok(mut news) = News::of(server, uris).await else { return };
    loop {
        let changed = tokio::select! {
            changed = news.next() => changed,
            () = context.cancelled() => return,
            () = server.gone().cancelled() => return,
        };
        let Ok(changed) = changed else { return };
        for uri in changed {
            if context.sink().notify_resource_updated(uri).await.is_err() {
                return;
            }
        }
    }
}

/// Finds out which of some resources have changed.
struct News {
    server: Server,
    bell: tokio::sync::watch::Receiver<u64>,
    known: HashMap<String, String>,
}

impl News {
    async fn of(server: &Server, uris: Vec<String>) -> Result<Self, Fault> {
        let call = server.call(None).await?;
        let bell = server.bell().listen(&call.house);
        let known = blocking(move || {
            let known = uris.into_iter().map(|uri| Ok((uri.clone(), resources::fingerprint(&call, &uri)?)));
            known.collect::<Result<HashMap<_, _>, Fault>>()
        });
        Ok(News { server: server.clone(), bell, known: known.await? })
    }

    /// Waits until some have changed, and names them.
    async fn next(&mut self) -> Result<Vec<String>, Fault> {
        loop {
            // The bell also rings without news, at every slow poll: what nobody rings for is found then.
            if self.bell.changed().await.is_err() {
                return Err(Fault("nobody rings any more".into()));
            }
            let call = self.server.call(None).await?;
            let known = self.known.clone();
            let now = blocking(move || {
                Ok(known
                    .into_keys()
                    // A task that was pruned has changed, too.
                    .map(|uri| (uri.clone(), resources::fingerprint(&call, &uri).unwrap_or_default()))
                    .collect::<HashMap<_, _>>())
            })
            .await?;
            let mut changed: Vec<String> = now
                .iter()
                .filter(|(uri, print)| self.known.get(*uri) != Some(*print))
                .map(|(uri, _)| uri.clone())
                .collect();
            changed.sort();
            self.known = now;
            if !changed.is_empty() {
                return Ok(changed);
            }
        }
    }
}

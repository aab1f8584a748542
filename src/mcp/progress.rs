//! Telling a client that asked for it how far a call is.

use super::clean;
use super::tool::Fault;
use rmcp::RoleServer;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RequestContext};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;

/// How often the client hears that a call still goes on.
pub const NEWS: Duration = Duration::from_secs(5);

/// The progress of one call.
pub struct Progress {
    peer: Peer<RoleServer>,
    token: ProgressToken,
    start: Instant,
}

impl Progress {
    /// The progress of a call, if its client asked to hear of it.
    pub fn of(context: &RequestContext<RoleServer>) -> Option<Self> {
        let token = context.meta.get_progress_token()?;
        Some(Progress { peer: context.peer.clone(), token, start: Instant::now() })
    }

    /// Tells the client. What counts is the seconds that have passed.
    pub async fn tell(&self, total: Option<Duration>, message: &str) {
        let seconds = self.start.elapsed().as_secs_f64();
        let mut progress = ProgressNotificationParam::new(self.token.clone(), seconds);
        progress = progress.with_message(clean::text(message));
        if let Some(total) = total {
            progress = progress.with_total(total.as_secs_f64());
        }
        // A client that has gone is noticed by its end of input.
        let _ = self.peer.notify_progress(progress).await;
    }
}

/// Waits for the work of a call, and tells what it says meanwhile; the last of it again every few seconds.
pub async fn during<T>(
    context: &RequestContext<RoleServer>,
    mut news: UnboundedReceiver<String>,
    work: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    let Some(progress) = Progress::of(context) else { return work.await };
    tokio::pin!(work);
    let mut last = "still at it".to_owned();
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            Some(text) = news.recv() => last = text,
            () = tokio::time::sleep(NEWS) => {}
        }
        progress.tell(None, &last).await;
    }
}

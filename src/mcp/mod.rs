//! The MCP server: any planner submits, watches and decides by way of its tools.
//!
//! The server keeps nothing that matters: each call opens the spool, does one thing and lets go. A server
//! that dies loses nothing, and any number of them work side by side. It serves both protocol eras from
//! one handler. Standard output carries the protocol and nothing else.
//!
//! Who may know whom: `server` hands requests to `tools`, `resources`, `prompts`, `complete` and
//! `extension`; these call `verbs`; `tool` is what a tool is made of; `bell` wakes whoever waits; `progress` tells the client
//! how far a call is.

mod bell;
mod clean;
mod complete;
mod extension;
mod input;
mod progress;
mod prompts;
mod reference;
mod resources;
mod schema;
mod server;
mod subscribe;
mod tool;
mod tools;
mod view;

pub use reference::reference;
pub use server::Server;

use anyhow::Context as _;
use rmcp::ServiceExt as _;
use rmcp::service::ServerInitializeError;
use std::path::PathBuf;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// How often the server looks whether its parent is still there. A client that keeps the pipe open in
/// another process and dies would leave it behind otherwise.
const PARENT: Duration = Duration::from_secs(5);

/// Serves one client on standard input and output until it goes away, a signal comes, the parent is gone,
/// or nothing was asked for as long as `idle`.
pub fn serve(spool: Option<PathBuf>, idle: Option<Duration>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the server")?;
    let served = runtime.block_on(run(spool, idle));
    // A call that still blocks on the disk is not waited for: everything it does survives being cut off.
    runtime.shutdown_background();
    served
}

async fn run(spool: Option<PathBuf>, idle: Option<Duration>) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let parent = rustix::process::getppid();
    let (reader, writer) = rmcp::transport::io::stdio_pipes();
    let (reader, gone) = input::Input::new(reader);
    let server = Server::new(spool, gone.clone());
    let activity = server.activity();
    let serving = async {
        match server.serve((reader, writer)).await {
            Ok(running) => drop(running.waiting().await),
            // It went before it said a word.
            Err(ServerInitializeError::ConnectionClosed(_)) => {}
            Err(e) => return Err(anyhow::anyhow!("the first message is not MCP: {e}")),
        }
        Ok(())
    };
    let mut look = tokio::time::interval(PARENT);
    tokio::pin!(serving);
    loop {
        tokio::select! {
            served = &mut serving => return served,
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            _ = look.tick() => {
                let idle_for = activity.idle_for();
                if rustix::process::getppid() != parent || idle.is_some_and(|most| idle_for >= most) {
                    return Ok(());
                }
            }
        }
    }
}

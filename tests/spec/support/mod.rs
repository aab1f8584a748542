//! What every test of the specification stands on: a world of its own, and verbs in it.

mod census;
mod disk;
mod misbehave;
mod ran;
mod repo;
mod runner;
mod submit;
mod world;

pub use ran::Ran;
pub use repo::Repo;
pub use submit::Submit;
pub use world::World;

use std::time::Duration;

/// How long anything that is awaited may take: far more than it needs, for a machine that is busy.
pub const PATIENCE: Duration = Duration::from_secs(90);

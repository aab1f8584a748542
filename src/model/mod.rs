//! The nouns: what a task, a ticket, a result are, and how each is written. No input or output here.

pub mod check;
pub mod command;
pub mod config;
pub mod config_keys;
pub mod event;
pub mod fact;
mod hex;
pub mod id;
pub mod input;
pub mod profile;
pub mod receipt;
pub mod rejection;
pub mod request;
pub mod result;
pub mod review;
pub mod schema;
pub mod task;
pub mod ticket;
pub mod words;

pub use command::Command;
pub use config::{Config, RepoConfig};
pub use event::{Event, EventKind};
pub use fact::{ErrorClass, Fact, LimitKind, Usage, UsageScope};
pub use hex::hex;
pub use id::{TaskId, WorkerName};
pub use profile::Profile;
pub use rejection::{Problem, ProblemKind, Rejection};
pub use request::{Request, RequestKind, RequestName};
pub use result::TaskResult;
pub use review::{Landed, ReviewFile, Verdict};
pub use task::{Batch, Intake, Task, TaskSpec, VERSION};
pub use ticket::{DoneTicket, Short, Ticket, TimedTicket};
pub use words::{
    Class, Confine, Door, Effort, GateKind, HeldReason, Mode, NoticeKind, Permission, Phase, Review, Role,
    RouteKey, State, Verification, WorkspaceKind,
};

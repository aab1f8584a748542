//! A spool of coding tasks on disk, and a runner that works them off.
//!
//! The directory is the state: a task is where its ticket is, a transition is one rename, and any
//! process may be killed at any instant. Modules are listed from the top of the house to its
//! foundation; a module imports only what stands below it.
//!
//! The command line is one door to a spool, this library another; both go the same way:
//!
//! ```no_run
//! use workspool::model::input::Submission;
//! use workspool::model::task::SubmittedBy;
//! use workspool::model::{Door, TaskSpec};
//! use workspool::verbs::House;
//! use workspool::{intake, runner, verbs};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let house = House::open(None)?; // $WORKSPOOL_HOME, else ~/.workspool
//! let mut task = TaskSpec::new("sed -i s/colour/color/ README.md");
//! task.worker = Some("shell".parse()?);
//! task.repository = Some("/home/me/project".into());
//! let by = SubmittedBy { door: Door::Library, client: Some("my-planner".into()), file: None, results: None };
//! let accepted = intake::submit(&house.spool, &house.config, Submission::One(Box::new(task)), by)?;
//!
//! runner::pass(&house.spool, &house.config); // or leave it to `workspool run`
//! let waited = verbs::wait(&house, &[accepted[0].id], false, None, |_, _| {})?;
//! println!("{:?}", waited.states);
//! # Ok(())
//! # }
//! ```

pub mod cli;
pub mod mcp;
pub mod verbs;
pub mod runner;
pub mod care;
pub mod setup;
pub mod review;
pub mod attempt;
pub mod intake;
pub mod gate;
pub mod workspace;
pub mod keeper;
pub mod worker;
pub mod spool;
pub mod git;
pub mod process;
pub mod redact;
pub mod durable;
pub mod model;

//! `workspool list`.

use super::exit::{self, Exit};
use super::term;
use crate::model::{Review, State, TaskId};
use crate::verbs::{self, Filter, House};
use std::path::PathBuf;

/// List tasks, newest first
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  workspool list
  workspool list --state failed --state timed_out --repo .
  workspool list --review unreviewed --json")]
pub struct Args {
    /// Only tasks in this state (can be repeated)
    #[arg(long, value_name = "STATE")]
    state: Vec<State>,
    /// Only succeeded tasks with this verdict: unreviewed, accepted, changes_requested or rejected
    #[arg(long, value_name = "VERDICT")]
    review: Option<Review>,
    /// Only tasks with this tag (can be repeated)
    #[arg(long, value_name = "TAG")]
    tag: Vec<String>,
    /// Only tasks about this repository
    #[arg(long, value_name = "DIR")]
    repo: Option<PathBuf>,
    /// Only tasks of this worker
    #[arg(long, value_name = "NAME")]
    worker: Option<String>,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
    /// Go on after this task of the list before
    #[arg(long, value_name = "ID")]
    after: Option<TaskId>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Carries the verb out.
pub fn run(house: &House, args: &Args) -> Result<u8, Exit> {
    if let Some(repo) = args.repo.as_ref().filter(|repo| !repo.exists()) {
        return Err(Exit::new(exit::REPOSITORY, format!("there is no folder {}", repo.display())));
    }
    let filter = Filter {
        states: args.state.clone(),
        review: args.review,
        tags: args.tag.clone(),
        repository: args.repo.clone(),
        worker: args.worker.clone(),
        limit: args.limit,
        after: args.after,
        effort: None,
    };
    let listing = verbs::list(house, &filter)?;
    if args.json {
        term::json(&listing)?;
        return Ok(0);
    }
    if listing.tasks.is_empty() {
        term::note("no tasks");
    }
    for task in &listing.tasks {
        let review = match task.head.review {
            Some(review) if review != Review::Unreviewed => format!(" ({review})"),
            _ => String::new(),
        };
        let when = term::ago(task.ended_at.unwrap_or(task.submitted_at));
        term::line(&format!(
            "{}  {}  {:10}  {:10}  {}{review}",
            task.head.id,
            term::state(task.head.state, 15),
            term::printable(&task.head.worker),
            when,
            term::printable(&task.head.title),
        ))?;
    }
    if let Some(next) = listing.next {
        term::note(&format!("more: workspool list --after {next}"));
    }
    Ok(0)
}

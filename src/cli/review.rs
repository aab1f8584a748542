//! `workspool accept`, `reject`, `revise`.

use super::exit::{self, Exit};
use super::term;
use crate::review::{self, Acceptance, As, NotAccepted};
use crate::verbs::House;
use std::path::PathBuf;

/// Bring a succeeded task's change into your repository, whole or not at all
///
/// A conflict, or a file of yours in the way, is named, and nothing is touched. Your own edits to other
/// files, staged or not, stay as they are.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  workspool accept 01jdq3m6
  workspool accept 01jdq3m6 --as commit
  workspool accept 01jdq3m6 --as branch --branch spelling")]
pub struct AcceptArgs {
    /// The task's id, the beginning or end of it, or the name of a dropped file
    task: String,
    /// apply: into the working tree, staged; commit: as a commit on the current branch; branch: as a branch
    #[arg(long = "as", value_name = "HOW", default_value = "apply")]
    how: As,
    /// The branch's name, with --as branch [default: accepted/ID]
    #[arg(long, value_name = "NAME")]
    branch: Option<String>,
    /// The commit's message, with --as commit [default: the task's]
    #[arg(long, short, value_name = "TEXT")]
    message: Option<String>,
    /// Accept although there are no verify commands
    #[arg(long)]
    unverified: bool,
    /// Accept although its records do not match its receipt: see `workspool audit`
    #[arg(long)]
    unaudited: bool,
    /// Accept although hooks or settings that can execute changed since the task began
    #[arg(long)]
    changed_settings: bool,
    /// Accept only if the task has this hash, as `submit` printed it
    #[arg(long, value_name = "HEX")]
    sha256: Option<String>,
    /// Land in this checkout of the same repository instead of the task's own
    #[arg(long, value_name = "DIR")]
    into: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Carries `accept` out.
pub fn accept(house: &House, args: AcceptArgs) -> Result<u8, Exit> {
    let id = super::resolve(house, &args.task)?;
    let wish = Acceptance {
        how: args.how,
        branch: args.branch,
        message: args.message,
        unverified: args.unverified,
        unaudited: args.unaudited,
        changed_settings: args.changed_settings,
        sha256: args.sha256.map(|s| s.trim_start_matches("sha256:").to_ascii_lowercase()),
        checkout: args.into,
        remark: None,
    };
    let landed = review::accept(&house.spool, id, &wish)?;
    if args.json {
        term::json(&landed)?;
        return Ok(0);
    }
    let files = if landed.files == 1 { "1 file".to_owned() } else { format!("{} files", landed.files) };
    let what = match (landed.how.as_str(), &landed.commit, &landed.branch) {
        _ if landed.files == 0 => "accepted: there was nothing to bring into the repository".to_owned(),
        ("branch", _, Some(branch)) => {
            format!("accepted as branch {}", branch.trim_start_matches("refs/heads/"))
        }
        (_, Some(commit), _) => format!("accepted as commit {commit} ({files})"),
        _ => format!("accepted into the working tree ({files}, staged)"),
    };
    term::line(&format!("{id}  {what}"))?;
    if !landed.gated {
        term::note("note: HEAD had moved on, so the merged result is not the tree that was verified");
    }
    Ok(0)
}

/// Refuse a succeeded task's change; nothing is removed
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  workspool reject 01jdq3m6 --reason 'wrong module'")]
pub struct RejectArgs {
    /// Ids of tasks, or beginnings of ids
    #[arg(required = true, value_name = "TASK")]
    tasks: Vec<String>,
    /// Why, for the record
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Carries `reject` out.
pub fn reject(house: &House, args: &RejectArgs) -> Result<u8, Exit> {
    super::state::each(house, &args.tasks, |id| {
        review::reject(&house.spool, id, args.reason.clone())?;
        term::line(&format!("{id}  rejected"))
    })
}

/// Send a succeeded task back with feedback; a new attempt goes on from what the last one left
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  workspool revise 01jdq3m6 --feedback 'keep the old name as an alias'")]
pub struct ReviseArgs {
    /// The task's id, or the beginning of it
    task: String,
    /// What is to be changed
    #[arg(long, short, value_name = "TEXT")]
    feedback: String,
}

/// Carries `revise` out.
pub fn revise(house: &House, args: &ReviseArgs) -> Result<u8, Exit> {
    let id = super::resolve(house, &args.task)?;
    review::revise(&house.spool, id, args.feedback.clone())?;
    house.spool.ring();
    term::line(&format!("{id}  queued again with feedback"))?;
    Ok(0)
}

impl From<NotAccepted> for Exit {
    fn from(e: NotAccepted) -> Self {
        match e {
            NotAccepted::Spool(e) => e.into(),
            NotAccepted::Fault(e) => e.into(),
            NotAccepted::Unverified(_) | NotAccepted::OtherTask(_) | NotAccepted::OnlyApply(_) => {
                Exit::new(exit::STATE, e.to_string())
            }
            NotAccepted::Audit { .. } => Exit::new(exit::PROBLEMS, e.to_string()),
            NotAccepted::Refused(_) => Exit::new(exit::REFUSED, e.to_string()),
        }
    }
}

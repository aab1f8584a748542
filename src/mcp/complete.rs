//! Completion of what can be known beforehand: ids of tasks, workers, models.

use super::tool::{Call, Fault};
use crate::verbs::{self, Filter};
use crate::worker;
use rmcp::model::{CompleteRequestParams, CompleteResult, CompletionInfo, Reference};
use std::collections::BTreeSet;

/// Newest tasks that are looked at: a list costs the same with any history.
const LOOK: usize = 500;

/// Completes the argument of a prompt or of a resource's address.
pub fn complete(call: &Call, request: &CompleteRequestParams) -> Result<CompleteResult, Fault> {
    let argument = &request.argument;
    let known = match (&request.r#ref, argument.name.as_str()) {
        (Reference::Resource(_), "id") | (Reference::Prompt(_), "task") => tasks(call, &argument.value)?,
        (Reference::Prompt(_), "worker") => workers(call)?,
        (Reference::Prompt(_), "model") => {
            let worker = request.context.as_ref().and_then(|c| c.get_argument("worker"));
            models(call, worker.map(String::as_str))?
        }
        (Reference::Prompt(_), "repository") => repositories(call)?,
        _ => Vec::new(),
    };
    let mut fitting: Vec<String> = known.into_iter().filter(|k| k.starts_with(&argument.value)).collect();
    let total = fitting.len();
    fitting.truncate(CompletionInfo::MAX_VALUES);
    let more = total > fitting.len();
    let info = CompletionInfo::with_pagination(fitting, u32::try_from(total).ok(), more);
    Ok(CompleteResult::new(info.map_err(Fault)?))
}

fn tasks(call: &Call, beginning: &str) -> Result<Vec<String>, Fault> {
    let listing = verbs::list(&call.house, &Filter { limit: LOOK, ..Filter::default() })?;
    let lower = beginning.to_ascii_lowercase();
    Ok(listing.tasks.into_iter().map(|t| t.head.id.to_string()).filter(|id| id.starts_with(&lower)).collect())
}

fn workers(call: &Call) -> Result<Vec<String>, Fault> {
    Ok(worker::all(&call.house.spool)?.into_keys().map(|name| name.to_string()).collect())
}

fn models(call: &Call, worker: Option<&str>) -> Result<Vec<String>, Fault> {
    let all = worker::all(&call.house.spool)?;
    let chosen = all.into_iter().filter(|(name, _)| worker.is_none_or(|w| name.as_str() == w));
    let models: BTreeSet<String> = chosen
        .filter_map(|(_, (_, profile))| profile.ok())
        .flat_map(|p| p.models.into_iter().chain(p.default_model))
        .collect();
    Ok(models.into_iter().collect())
}

fn repositories(call: &Call) -> Result<Vec<String>, Fault> {
    let listing = verbs::list(&call.house, &Filter { limit: LOOK, ..Filter::default() })?;
    let paths = listing.tasks.into_iter().filter_map(|t| t.head.repository);
    let paths: BTreeSet<String> = paths.map(|p| p.display().to_string()).collect();
    Ok(paths.into_iter().collect())
}

//! Tasks as resources: `workspool://tasks/{id}` and what belongs to one.

use super::clean;
use super::tool::{Call, Fault};
use super::view::TaskView;
use crate::model::TaskId;
use crate::verbs::{self, DiffQuery, Filter, LogQuery};
use rmcp::model::{
    ListResourceTemplatesResult, ListResourcesResult, ReadResourceResult, Resource, ResourceContents,
    ResourceTemplate,
};

/// The beginning of every address.
const PREFIX: &str = "workspool://tasks/";
/// Tasks on a page of the list.
const PAGE: usize = 50;
/// Most bytes of a log or a patch; the tools have pages for more.
const LARGEST: usize = 256 * 1024;

/// What of a task a resource is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Where it stands.
    Task,
    /// The record of what came out.
    Result,
    /// What it changed.
    Diff,
    /// What its commands printed.
    Log,
    /// What proves it.
    Receipt,
}

impl Part {
    const ALL: [(Part, &'static str, &'static str, &'static str); 5] = [
        (Part::Task, "", "application/json", "Where a task stands, what came out, what to do next"),
        (Part::Result, "/result", "application/json", "The whole record of what came out of a task"),
        (Part::Diff, "/diff", "text/x-diff", "What a task changed, as a patch, secrets masked"),
        (Part::Log, "/log", "text/plain", "The end of what a task's commands printed, secrets masked"),
        (
            Part::Receipt,
            "/receipt",
            "application/json",
            "The hashes that tie a task, its change and its gate",
        ),
    ];

    fn mime(self) -> &'static str {
        Part::ALL.iter().find(|p| p.0 == self).map_or("text/plain", |p| p.2)
    }
}

/// The address of a task.
pub fn uri(id: TaskId) -> String {
    format!("{PREFIX}{id}")
}

/// Reads an address: the id must be whole.
pub fn parse(uri: &str) -> Option<(TaskId, Part)> {
    let rest = uri.strip_prefix(PREFIX)?;
    let (id, part) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let part = Part::ALL.iter().find(|p| p.1 == part)?.0;
    Some((id.parse().ok()?, part))
}

/// The newest tasks.
pub fn list(call: &Call, cursor: Option<&str>) -> Result<ListResourcesResult, Fault> {
    let after = match cursor {
        Some(text) => {
            Some(text.parse().map_err(|_| Fault(format!("{text:?} is not a cursor of this list")))?)
        }
        None => None,
    };
    let listing = verbs::list(&call.house, &Filter { limit: PAGE, after, ..Filter::default() })?;
    let resources = listing.tasks.into_iter().map(|task| {
        let about = match &task.message {
            Some(message) => format!("{}: {message}", task.head.state),
            None => task.head.state.to_string(),
        };
        Resource::new(uri(task.head.id), task.head.id.to_string())
            .with_title(clean::text(&task.head.title))
            .with_description(clean::text(&about))
            .with_mime_type(Part::Task.mime())
    });
    let mut result = ListResourcesResult::with_all_items(resources.collect());
    result.next_cursor = listing.next.map(|id| id.to_string());
    Ok(result)
}

/// The forms of addresses.
pub fn templates() -> ListResourceTemplatesResult {
    let templates = Part::ALL.iter().map(|(_, path, mime, about)| {
        let name = path.strip_prefix('/').unwrap_or("task");
        ResourceTemplate::new(format!("{PREFIX}{{id}}{path}"), name)
            .with_description(*about)
            .with_mime_type(*mime)
    });
    ListResourceTemplatesResult::with_all_items(templates.collect())
}

/// Reads a resource.
pub fn read(call: &Call, uri: &str) -> Result<ReadResourceResult, Fault> {
    let none = || Fault(format!("there is no resource {uri}: list_tasks shows the tasks"));
    let (id, part) = parse(uri).ok_or_else(none)?;
    let id = call.task(&id.to_string())?;
    let house = &call.house;
    let text = match part {
        Part::Task => pretty(serde_json::to_value(TaskView::of(verbs::show(house, id)?))?),
        Part::Result => match house.spool.read_result(id)? {
            Some(result) => pretty(serde_json::to_value(result)?),
            None => return Err(Fault(format!("task {id} has no result yet"))),
        },
        Part::Receipt => match std::fs::read(house.spool.task(id).receipt()) {
            Ok(bytes) => pretty(serde_json::from_slice(&bytes)?),
            Err(_) => return Err(Fault(format!("task {id} has no receipt"))),
        },
        Part::Diff => {
            let query = DiffQuery { max_bytes: LARGEST, ..DiffQuery::default() };
            let page = verbs::read_diff(house, id, &query)?;
            let more = page.next.map(|_| "\n… the rest: get_diff\n");
            page.patch + more.unwrap_or_default()
        }
        Part::Log => {
            let query = LogQuery { max_bytes: LARGEST, ..LogQuery::default() };
            let page = verbs::read_log(house, id, &query)?;
            let before = if page.begins_later { "… what was printed before: get_log\n" } else { "" };
            format!("{before}{}", page.text)
        }
    };
    Ok(ReadResourceResult::new(vec![ResourceContents::text(text, uri).with_mime_type(part.mime())]))
}

fn pretty(mut value: serde_json::Value) -> String {
    clean::value(&mut value);
    format!("{value:#}")
}

/// What a subscriber is told of when it changes: the state, the attempt, and the files of the part.
pub fn fingerprint(call: &Call, uri: &str) -> Result<String, Fault> {
    let none = || Fault(format!("there is no resource {uri}"));
    let (id, part) = parse(uri).ok_or_else(none)?;
    let spool = &call.house.spool;
    let id = call.task(&id.to_string())?;
    let found = spool.find_ticket(id)?;
    let dir = spool.task(id);
    let mut files = match part {
        Part::Task => vec![dir.progress(), dir.review(), dir.result(), dir.hold()],
        Part::Result => vec![dir.result()],
        Part::Diff => vec![dir.diff()],
        Part::Receipt => vec![dir.receipt()],
        Part::Log => verbs::log_steps(&call.house, id)?.into_iter().map(|s| s.log).collect(),
    };
    files.sort();
    let mut text = format!("{:?}", found.filter(|_| matches!(part, Part::Task)));
    for file in files {
        if let Ok(meta) = file.metadata() {
            text.push_str(&format!(" {}:{:?}", meta.len(), meta.modified().ok()));
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_back_and_nothing_else_is_one() {
        let id = TaskId::generate();
        assert_eq!(parse(&uri(id)), Some((id, Part::Task)));
        assert_eq!(parse(&format!("{}/log", uri(id))), Some((id, Part::Log)));
        for bad in
            ["workspool://tasks/", "workspool://tasks/../x", "file:///etc/passwd", "workspool://tasks/abc"]
        {
            assert_eq!(parse(bad), None, "{bad}");
        }
        assert_eq!(parse(&format!("{}/secrets", uri(id))), None);
        assert_eq!(parse(&format!("{}/../x", uri(id))), None);
    }
}

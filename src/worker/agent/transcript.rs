//! The conversation on disk: written as it goes, masked, and read to go on from.

use super::conversation::{Item, answer_lost_calls};
use super::failure::Failure;
use super::output::mask;
use crate::durable;
use crate::model::ErrorClass;
use crate::redact::Redactor;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The line that begins a conversation in a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Head {
    /// Its id, which is the session's.
    session: String,
    /// The API that it is held with: what is native to one means nothing to another.
    api: String,
    /// The model.
    model: String,
}

/// A line of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    Item(Item),
    Head(Head),
}

/// Fields that only the provider reads: sealed thoughts, and names that lines are tied together by.
const PLAIN: &[&str] = &[
    "item",
    "type",
    "role",
    "call",
    "id",
    "call_id",
    "tool_use_id",
    "signature",
    "encrypted_content",
    "data",
];

/// A conversation's file.
#[derive(Debug)]
pub(super) struct Transcript {
    path: PathBuf,
    redactor: Redactor,
    session: String,
}

/// A conversation that was read.
#[derive(Debug)]
pub(super) struct Resumed {
    /// Its id.
    pub session: String,
    /// What was said.
    pub items: Vec<Item>,
}

impl Transcript {
    /// Begins a conversation in a file, or goes on with `resumed` in it. Earlier ones in the file stay.
    pub fn begin(
        path: &Path,
        redactor: &Redactor,
        api: &str,
        model: &str,
        resumed: Option<&Resumed>,
    ) -> io::Result<Transcript> {
        if let Some(dir) = path.parent().filter(|d| !d.as_os_str().is_empty()) {
            durable::ensure_dir(dir)?;
        }
        let session = match resumed {
            Some(resumed) => resumed.session.clone(),
            None => ulid::Ulid::generate().to_string().to_lowercase(),
        };
        let transcript =
            Transcript { path: path.to_owned(), redactor: redactor.clone(), session: session.clone() };
        // A run that was killed may have left half a line.
        let torn = fs::read(path).is_ok_and(|bytes| bytes.last().is_some_and(|b| *b != b'\n'));
        if torn {
            durable::append(path, b"\n")?;
        }
        let head = Head { session, api: api.to_owned(), model: model.to_owned() };
        transcript.write(&Line::Head(head))?;
        for item in resumed.iter().flat_map(|resumed| &resumed.items) {
            transcript.add(item)?;
        }
        Ok(transcript)
    }

    /// The conversation's id.
    pub fn session(&self) -> &str {
        &self.session
    }

    /// Writes what was said.
    pub fn add(&self, item: &Item) -> io::Result<()> {
        let mut item = item.clone();
        if let Item::Assistant { native, .. } = &mut item
            && native.iter_mut().fold(false, |any, value| mask(&self.redactor, value, PLAIN) | any)
        {
            // What was signed no longer fits its signature: text and calls must do.
            native.clear();
        }
        self.write(&Line::Item(item))
    }

    fn write(&self, line: &Line) -> io::Result<()> {
        let mut value = serde_json::to_value(line)?;
        let native = value.get_mut("native").map(serde_json::Value::take);
        mask(&self.redactor, &mut value, PLAIN);
        if let Some(native) = native {
            value["native"] = native;
        }
        durable::append(&self.path, format!("{value}\n").as_bytes())
    }
}

/// Reads the conversation that `wanted` names: a file, or an id to be found in `beside` or in a file of that
/// name in a neighbouring folder (another attempt's).
pub(super) fn resume(wanted: &str, beside: Option<&Path>, api: &str) -> Result<Resumed, Failure> {
    let missing =
        |why: String| Failure::new(ErrorClass::SessionNotFound, format!("session not found: {why}"));
    let found = if wanted.contains('/') {
        let path = Path::new(wanted);
        read(path, None, api).map_err(|e| missing(format!("{}: {e}", path.display())))?
    } else {
        let places = beside.map(places).unwrap_or_default();
        places.iter().rev().find_map(|path| read(path, Some(wanted), api).ok().flatten())
    };
    found.ok_or_else(|| missing(wanted.to_owned()))
}

/// The files that may hold a session, the likeliest last: folders of attempts are numbered.
fn places(beside: &Path) -> Vec<PathBuf> {
    let mut places = Vec::new();
    if let (Some(name), Some(all)) = (beside.file_name(), beside.parent().and_then(Path::parent)) {
        let dirs = fs::read_dir(all).into_iter().flatten().flatten();
        places.extend(dirs.map(|dir| dir.path().join(name)).filter(|path| path != beside && path.is_file()));
        places.sort_by_key(|path| {
            let dir = path.parent().and_then(Path::file_name).unwrap_or_default().to_owned();
            (dir.to_str().and_then(|d| d.parse::<u64>().ok()), dir)
        });
    }
    places.push(beside.to_owned());
    places
}

/// Reads the last conversation of a file, or the last one of this id.
fn read(path: &Path, session: Option<&str>, api: &str) -> io::Result<Option<Resumed>> {
    let bytes = fs::read(path)?;
    let mut found: Option<(Head, Vec<Item>)> = None;
    let mut ours = false;
    for line in bytes.split(|b| *b == b'\n') {
        match serde_json::from_slice(line) {
            Ok(Line::Head(head)) => {
                ours = session.is_none_or(|session| session == head.session);
                if ours {
                    found = Some((head, Vec::new()));
                }
            }
            Ok(Line::Item(item)) if ours => {
                if let Some((_, items)) = &mut found {
                    items.push(item);
                }
            }
            // Half a line, or one of a later version.
            _ => {}
        }
    }
    Ok(found.map(|(head, mut items)| {
        answer_lost_calls(&mut items);
        if head.api != api {
            for item in &mut items {
                if let Item::Assistant { native, .. } = item {
                    native.clear();
                }
            }
        }
        Resumed { session: head.session, items }
    }))
}

#[cfg(test)]
mod tests {
    use super::super::conversation::Call;
    use super::*;
    use serde_json::json;

    fn assistant(text: &str, native: serde_json::Value) -> Item {
        let call = Call { id: "c1".into(), name: "run_shell".into(), arguments: "{}".into() };
        Item::Assistant { text: text.into(), calls: vec![call], native: vec![native] }
    }

    fn begin(path: &Path, resumed: Option<&Resumed>) -> Transcript {
        let redactor = Redactor::new([b"hunter2-hunter2".to_vec()]);
        Transcript::begin(path, &redactor, "chat", "m", resumed).unwrap()
    }

    #[test]
    fn what_was_said_comes_back_and_secrets_do_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1/transcript.jsonl");
        let transcript = begin(&path, None);
        let sealed = json!({"type": "thinking", "thinking": "ok", "signature": "c2VjcmV0LXNpZ25hdHVyZQ=="});
        transcript.add(&Item::user("the password is hunter2-hunter2")).unwrap();
        transcript.add(&assistant("a", sealed.clone())).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.contains("hunter2"), "{text}");
        let back = resume(transcript.session(), Some(&path), "chat").unwrap();
        assert_eq!(back.session, transcript.session());
        assert_eq!(back.items[1], assistant("a", sealed));
        assert!(matches!(&back.items[2], Item::Result { ok: false, call, .. } if call == "c1"), "{back:?}");
        let other = resume(path.to_str().unwrap(), None, "anthropic").unwrap();
        assert!(matches!(&other.items[1], Item::Assistant { native, .. } if native.is_empty()));
    }

    #[test]
    fn a_masked_thought_loses_its_signed_form() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.jsonl");
        let transcript = begin(&path, None);
        transcript.add(&assistant("a", json!({"thinking": "hunter2-hunter2", "signature": "s"}))).unwrap();
        let back = resume(path.to_str().unwrap(), None, "chat").unwrap();
        assert!(
            matches!(&back.items[0], Item::Assistant { native, text, .. } if native.is_empty() && text == "a")
        );
    }

    #[test]
    fn an_id_is_found_in_another_attempt_and_half_lines_do_no_harm() {
        let dir = tempfile::tempdir().unwrap();
        let (first, tenth) = (dir.path().join("2/t.jsonl"), dir.path().join("10/t.jsonl"));
        let transcript = begin(&first, None);
        transcript.add(&Item::user("one")).unwrap();
        durable::append(&first, b"{\"item\":\"user\",\"te").unwrap();
        let back = resume(transcript.session(), Some(&tenth), "chat").unwrap();
        assert_eq!(back.items, [Item::user("one")]);
        let again = begin(&tenth, Some(&back));
        again.add(&Item::user("two")).unwrap();
        assert_eq!(again.session(), transcript.session());
        let eleventh = dir.path().join("11/t.jsonl");
        let back = resume(transcript.session(), Some(&eleventh), "chat").unwrap();
        assert_eq!(back.items, [Item::user("one"), Item::user("two")], "the latest attempt's counts");
        let in_place = begin(&first, Some(&back));
        in_place.add(&Item::user("three")).unwrap();
        let back = resume(first.to_str().unwrap(), None, "chat").unwrap();
        assert_eq!(back.items.len(), 3);
        let lost = resume("01nosuch", Some(&first), "chat").unwrap_err();
        assert_eq!(lost.class, ErrorClass::SessionNotFound);
    }
}

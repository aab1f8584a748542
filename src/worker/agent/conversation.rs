//! What was said: the conversation in a form that no API owns.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One piece of the conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "item", rename_all = "snake_case")]
pub(super) enum Item {
    /// What the model is told.
    User {
        /// The text.
        text: String,
    },
    /// What the model said and called for.
    Assistant {
        /// Its text.
        text: String,
        /// The tools that it called, in order.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        calls: Vec<Call>,
        /// The same as the API wrote it, to be sent back unchanged: thoughts and their signatures have no
        /// other form. Empty if there is nothing that text and calls do not say.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        native: Vec<Value>,
    },
    /// What a tool answered.
    Result {
        /// The id of the call.
        call: String,
        /// The tool.
        name: String,
        /// What it answered.
        output: String,
        /// Whether it did what it was asked.
        ok: bool,
    },
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Call {
    /// The API's id for it.
    pub id: String,
    /// The tool.
    pub name: String,
    /// Its arguments: JSON as the model wrote it, which may be broken.
    pub arguments: String,
}

impl Call {
    /// The arguments as an object; an empty one if they cannot be read. For APIs that want an object back.
    pub fn object(&self) -> Value {
        match serde_json::from_str(&self.arguments) {
            Ok(value @ Value::Object(_)) => value,
            _ => Value::Object(serde_json::Map::new()),
        }
    }
}

impl Item {
    /// Makes what the model is told.
    pub fn user(text: impl Into<String>) -> Item {
        Item::User { text: text.into() }
    }

    /// Its size, as a measure of the tokens that it costs.
    pub fn bytes(&self) -> usize {
        /// Names, ids and braces around each piece.
        const FRAME: usize = 40;
        match self {
            Item::User { text } => text.len() + FRAME,
            Item::Assistant { text, calls, native } if native.is_empty() => {
                text.len() + calls.iter().map(|c| c.name.len() + c.arguments.len() + FRAME).sum::<usize>()
            }
            Item::Assistant { native, .. } => native.iter().map(|value| value.to_string().len()).sum(),
            Item::Result { output, .. } => output.len() + FRAME,
        }
    }
}

/// Answers calls that have no answer, such as those of a run that was ended while a tool ran. No API takes a
/// conversation back that has unanswered calls.
pub(super) fn answer_lost_calls(items: &mut Vec<Item>) {
    let mut at = 0;
    while at < items.len() {
        let Item::Assistant { calls, .. } = &items[at] else {
            at += 1;
            continue;
        };
        let calls = calls.clone();
        at += 1;
        let answers = items[at..].iter().take_while(|item| matches!(item, Item::Result { .. })).count();
        let lost: Vec<Item> = calls
            .into_iter()
            .filter(|call| {
                !items[at..at + answers].iter().any(|i| matches!(i, Item::Result { call: id, .. } if *id == call.id))
            })
            .map(|call| Item::Result {
                call: call.id,
                name: call.name,
                output: "The run was interrupted here: what this tool did, and whether it did anything, is not known."
                    .to_owned(),
                ok: false,
            })
            .collect();
        at += answers;
        let after = at + lost.len();
        items.splice(at..at, lost);
        at = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: &str) -> Call {
        Call { id: id.into(), name: "read_file".into(), arguments: "{}".into() }
    }

    fn result(id: &str) -> Item {
        Item::Result { call: id.into(), name: "read_file".into(), output: "x".into(), ok: true }
    }

    #[test]
    fn lost_calls_are_answered_in_their_place() {
        let asked = |ids: &[&str]| Item::Assistant {
            text: String::new(),
            calls: ids.iter().map(|id| call(id)).collect(),
            native: vec![],
        };
        let mut items =
            vec![Item::user("go"), asked(&["a", "b"]), result("a"), Item::user("on"), asked(&["c"])];
        answer_lost_calls(&mut items);
        let ids: Vec<&str> = items
            .iter()
            .map(|i| match i {
                Item::Result { call, .. } => call.as_str(),
                Item::User { .. } => "user",
                Item::Assistant { .. } => "assistant",
            })
            .collect();
        assert_eq!(ids, ["user", "assistant", "a", "b", "user", "assistant", "c"]);
        let before = items.clone();
        answer_lost_calls(&mut items);
        assert_eq!(items, before);
    }

    #[test]
    fn broken_arguments_go_back_as_an_empty_object() {
        let broken = Call { arguments: "{\"path\": \"a".into(), ..call("a") };
        assert_eq!(broken.object(), serde_json::json!({}));
        let list = Call { arguments: "[1]".into(), ..call("a") };
        assert_eq!(list.object(), serde_json::json!({}));
    }
}

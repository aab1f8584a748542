//! The three APIs: how each is asked, and how each answers.

mod anthropic;
mod chat;
mod responses;

use super::conversation::{Call, Item};
use super::failure::Failure;
use super::settings::Settings;
use super::sse;
use crate::model::{ErrorClass, Usage};
use serde_json::Value;

/// An API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Api {
    /// OpenAI's Chat Completions.
    Chat,
    /// OpenAI's Responses.
    Responses,
    /// Anthropic's Messages.
    Anthropic,
}

/// A tool, as a model is told of it.
#[derive(Debug, Clone)]
pub(super) struct Definition {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub description: String,
    /// The JSON Schema of its arguments.
    pub schema: Value,
}

/// What a request is made of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ask<'a> {
    /// How the run is set up.
    pub settings: &'a Settings,
    /// What the server is spared, since it does not know it.
    pub spared: Spared,
    /// What the model is told about its work.
    pub system: &'a str,
    /// The conversation.
    pub items: &'a [Item],
    /// The tools.
    pub tools: &'a [Definition],
}

/// Fields that a server refused, so that requests go without them. Compatible servers and older or newer
/// models differ in what they know.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Spared {
    temperature: bool,
    stream_options: bool,
    /// Say the limit of the answer by its other name.
    other_limit: bool,
    encrypted_thoughts: bool,
    /// Send no thoughts back.
    thoughts: bool,
    /// Say Anthropic's effort as a number of tokens to think in, as its older models know it.
    effort_in_words: bool,
}

impl Spared {
    /// Learns from a refusal; says whether the request is worth another try without what was refused.
    pub fn learn(&mut self, failure: &Failure) -> bool {
        // What speaks of the context mentions limits, too.
        if !matches!(failure.status, Some(400 | 422)) || failure.class == ErrorClass::ContextFull {
            return false;
        }
        let said = failure.message.to_ascii_lowercase();
        let before = *self;
        if said.contains("max_tokens") || said.contains("max_completion_tokens") {
            self.other_limit = true;
        } else if said.contains("output_config") || said.contains("effort parameter") {
            self.effort_in_words = true;
        } else if said.contains("temperature") {
            self.temperature = true;
        } else if said.contains("stream_options") || said.contains("include_usage") {
            self.stream_options = true;
        } else if said.contains("encrypted") && said.contains("content") || said.contains("'include") {
            self.encrypted_thoughts = true;
        } else if said.contains("reasoning") && !said.contains("effort") {
            // (An effort that was asked for is not given up in silence.)
            self.thoughts = true;
        }
        *self != before
    }
}

/// Why the model stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stop {
    /// It said what it had to say, or called tools.
    Done,
    /// Its answer reached the limit of one answer.
    Length,
    /// It wants to be asked again, with nothing new.
    Pause,
    /// It, or its provider, will not answer.
    Refused(String),
    /// The conversation reached the limit of the model.
    ContextFull,
}

/// One answer of the model.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Reply {
    /// Its text.
    pub text: String,
    /// The tools that it calls.
    pub calls: Vec<Call>,
    /// The same as the API wrote it, where that says more.
    pub native: Vec<Value>,
    /// Why it stopped.
    pub stop: Stop,
}

/// Reads one answer, event by event.
pub(super) trait Decoder {
    /// Takes an event of the stream; says whether nothing of interest comes after it.
    fn event(&mut self, value: Value) -> Result<bool, Failure>;
    /// Takes an answer that came as a whole, from a server that does not stream.
    fn whole(&mut self, value: Value) -> Result<(), Failure>;
    /// Whether the answer is complete.
    fn is_complete(&self) -> bool;
    /// What was used, as far as it was said.
    fn usage(&self) -> Usage;
    /// The model that answers, by its own name.
    fn model(&self) -> Option<String>;
    /// Returns the answer. Only for a complete one.
    fn reply(self: Box<Self>) -> Reply;
}

impl Api {
    /// Its name in records.
    pub fn name(self) -> &'static str {
        match self {
            Api::Chat => "openai-chat",
            Api::Responses => "openai-responses",
            Api::Anthropic => "anthropic",
        }
    }

    /// The address to post to.
    pub fn url(self, base: &str) -> String {
        match self {
            Api::Chat => format!("{base}/chat/completions"),
            Api::Responses => format!("{base}/responses"),
            Api::Anthropic if base.ends_with("/v1") => format!("{base}/messages"),
            Api::Anthropic => format!("{base}/v1/messages"),
        }
    }

    /// The headers of a request: who we are, and in which version we speak.
    pub fn headers(self, settings: &Settings) -> Vec<(&'static str, String)> {
        let mut headers = vec![("accept", "text/event-stream, application/json".to_owned())];
        if self == Api::Anthropic {
            headers.push(("anthropic-version", settings.api_version.clone()));
        }
        if let Some(key) = &settings.key {
            headers.push(if self == Api::Anthropic && !key.is_token() {
                ("x-api-key", key.value().to_owned())
            } else {
                ("authorization", format!("Bearer {}", key.value()))
            });
        }
        headers
    }

    /// The body of a request.
    pub fn body(self, ask: &Ask<'_>) -> Value {
        match self {
            Api::Chat => chat::body(ask),
            Api::Responses => responses::body(ask),
            Api::Anthropic => anthropic::body(ask),
        }
    }

    /// Returns a fresh decoder.
    pub fn decoder(self) -> Box<dyn Decoder> {
        match self {
            Api::Chat => Box::<chat::Chat>::default(),
            Api::Responses => Box::<responses::Responses>::default(),
            Api::Anthropic => Box::<anthropic::Anthropic>::default(),
        }
    }
}

/// Hands an event to a decoder; says whether it was the last one.
pub(super) fn take(event: &sse::Event, decoder: &mut dyn Decoder) -> Result<bool, Failure> {
    match event.data.trim() {
        "" => Ok(false),
        "[DONE]" => Ok(true),
        data => match serde_json::from_str(data) {
            Ok(value) => decoder.event(value),
            Err(e) => Err(unreadable(&format!("an event of the stream is no JSON: {e}"))),
        },
    }
}

/// An answer that cannot be understood: the fault of what lies between, more often than not.
pub(super) fn unreadable(what: &str) -> Failure {
    Failure::new(ErrorClass::Provider, format!("the answer cannot be read: {what}"))
}

/// Sets a field, if there is a value for it.
fn set(body: &mut Value, name: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        body[name] = value.into();
    }
}

/// Returns the slot of an index, made if it is the next one or close to it.
fn slot<T: Default>(slots: &mut Vec<T>, index: u64) -> Result<&mut T, Failure> {
    /// The most pieces that one answer has.
    const MOST: usize = 4096;
    let index = usize::try_from(index).unwrap_or(usize::MAX);
    if index >= MOST {
        return Err(unreadable("it has too many pieces"));
    }
    if slots.len() <= index {
        slots.resize_with(index + 1, T::default);
    }
    Ok(&mut slots[index])
}

#[cfg(test)]
mod tests;

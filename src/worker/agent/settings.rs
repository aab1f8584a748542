//! From options and environment to what the run works with: address, key, limits.

use super::api::Api;
use super::failure::Failure;
use super::{ApiChoice, Options};
use crate::model::{ErrorClass, Permission};
use crate::redact::Redactor;
use std::path::PathBuf;
use std::time::Duration;

/// What a run works with.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    /// The API to speak.
    pub api: Api,
    /// Its address, without a slash at the end.
    pub base_url: String,
    /// Whether that is the provider's own.
    pub is_vendor: bool,
    /// What to say who we are.
    pub key: Option<Key>,
    /// Masks the key, and whatever else looks like a secret.
    pub redactor: Redactor,
    /// The model.
    pub model: String,
    /// For Anthropic.
    pub api_version: String,
    /// The most answers of the model.
    pub max_iterations: u32,
    /// The most tokens of one answer.
    pub max_output_tokens: u32,
    /// Randomness, unless the provider's default is to hold.
    pub temperature: Option<f64>,
    /// How hard to think.
    pub effort: Option<String>,
    /// What the model can read at once.
    pub context_tokens: u64,
    /// Where the conversation is kept.
    pub transcript: Option<PathBuf>,
    /// What to continue.
    pub resume: Option<String>,
    /// Whether the model may write files.
    pub may_write: bool,
    /// Whether it may run commands.
    pub may_run: bool,
    /// Whether it was asked to stay off the network.
    pub no_network: bool,
    /// The most time of one command.
    pub shell_timeout: Duration,
    /// Time without a byte until a request counts as failed.
    pub read_timeout: Duration,
    /// How often a request is tried again.
    pub max_retries: u32,
    /// The most time that a request waits for its retries.
    pub max_retry_wait: Duration,
    /// The time until the first retry.
    pub retry_delay: Duration,
}

/// A key. It is never printed: there is no way to.
#[derive(Clone)]
pub(super) struct Key {
    /// The variable that it came from.
    pub variable: String,
    value: String,
}

impl Key {
    /// The value, for a request's header and for nothing else.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Whether it is a bearer token rather than an API key, where an API tells them apart.
    pub fn is_token(&self) -> bool {
        self.variable.ends_with("_TOKEN")
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({})", self.variable)
    }
}

const OPENAI: &str = "https://api.openai.com/v1";
const ANTHROPIC: &str = "https://api.anthropic.com";

impl Settings {
    /// Takes the options, and what is missing from the environment.
    pub fn resolve(options: &Options, env: impl Fn(&str) -> Option<String>) -> Result<Settings, Failure> {
        let env = |name: &str| env(name).map(|v| v.trim().to_owned()).filter(|v| !v.is_empty());
        let anthropic = options.api == ApiChoice::Anthropic;
        let (vendor, url_env, key_env) = if anthropic {
            (ANTHROPIC, "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY")
        } else {
            (OPENAI, "OPENAI_BASE_URL", "OPENAI_API_KEY")
        };
        let given = options.base_url.clone().or_else(|| env(url_env)).unwrap_or_else(|| vendor.to_owned());
        let base_url = given.trim().trim_end_matches('/').to_owned();
        let scheme = base_url.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
        if !matches!(scheme.as_deref(), Some("http" | "https")) {
            return Err(usage("the base URL is no http or https URL"));
        }
        let host = |url: &str| -> Option<String> {
            let rest = url.split_once("://")?.1;
            Some(rest.split(['/', '?', '#']).next()?.to_ascii_lowercase())
        };
        let is_vendor = host(&base_url) == host(vendor);
        if is_vendor && scheme.as_deref() == Some("http") {
            return Err(usage("the provider is asked by https only: anybody could read the key"));
        }
        let api = match options.api {
            ApiChoice::Anthropic => Api::Anthropic,
            ApiChoice::OpenaiChat => Api::Chat,
            ApiChoice::OpenaiResponses => Api::Responses,
            ApiChoice::Openai if is_vendor => Api::Responses,
            ApiChoice::Openai => Api::Chat,
        };
        // The provider's usual variable is only for the provider: no other host gets its key unless told to.
        let named = options.api_key_env.clone().filter(|name| !name.is_empty());
        let variable = named.or_else(|| is_vendor.then(|| key_env.to_owned()));
        let key = match &variable {
            Some(variable) => env(variable).map(|value| Key { variable: variable.clone(), value }),
            None => None,
        };
        let variable = variable.unwrap_or_default();
        match &key {
            Some(key) if !key.value.bytes().all(|b| b.is_ascii_graphic()) => {
                let message = format!("what {variable} holds is no key: it has characters that no key has");
                return Err(Failure::new(ErrorClass::Auth, message));
            }
            None if is_vendor => {
                let message = format!("not signed in: {variable} is not set, and {vendor} needs a key");
                return Err(Failure::new(ErrorClass::Auth, message));
            }
            _ => {}
        }
        let model = options.model.clone().map(|m| m.trim().to_owned()).filter(|m| !m.is_empty());
        let Some(model) = model else {
            return Err(usage("no model is named (--model)"));
        };
        if options.temperature.is_some_and(|t| !(0.0..=2.0).contains(&t)) {
            return Err(usage("the temperature is not between 0 and 2"));
        }
        let context_tokens = options.context_tokens.unwrap_or(if anthropic { 200_000 } else { 128_000 });
        if context_tokens <= u64::from(options.max_output_tokens) {
            return Err(usage(
                "--context-tokens leaves no room beside --max-output-tokens, which is part of it",
            ));
        }
        let may_write = options.permission != Permission::ReadOnly;
        Ok(Settings {
            api,
            is_vendor,
            redactor: Redactor::new(key.iter().map(|key| key.value.clone().into_bytes())),
            base_url,
            key,
            model,
            api_version: options.api_version.clone(),
            max_iterations: options.max_iterations,
            max_output_tokens: options.max_output_tokens,
            temperature: options.temperature.or((!anthropic).then_some(0.2)),
            effort: options.effort.clone(),
            context_tokens,
            transcript: options.transcript.clone(),
            resume: options.resume.clone().filter(|r| !r.is_empty()),
            may_write,
            may_run: may_write && !options.no_shell,
            no_network: options.no_network,
            shell_timeout: Duration::from_secs(options.shell_timeout),
            read_timeout: Duration::from_secs(options.read_timeout),
            max_retries: options.max_retries,
            max_retry_wait: Duration::from_secs(options.max_retry_wait),
            retry_delay: Duration::from_millis(options.retry_delay),
        })
    }
}

fn usage(message: &str) -> Failure {
    Failure::new(ErrorClass::Usage, message)
}

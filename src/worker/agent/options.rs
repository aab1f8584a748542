//! What the agent can be told on its command line.

use crate::model::Permission;
use std::path::PathBuf;

/// Work on the prompt (standard input) by way of a model's API, in the current folder
///
/// A worker like any other, run by the profiles openai and anthropic: it prints facts, a line of JSON each.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Example:
  workspool agent --api anthropic --max-iterations 10 < prompt.md")]
pub struct Options {
    /// The API; openai means Responses at OpenAI itself, and Chat Completions at any other base URL
    #[arg(long, value_enum)]
    pub api: ApiChoice,
    /// The model
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// The API's address [default: OPENAI_BASE_URL or ANTHROPIC_BASE_URL, else the provider's own]
    #[arg(long, value_name = "URL")]
    pub base_url: Option<String>,
    /// The environment variable that holds the key; a gateway may need none
    #[arg(long, value_name = "NAME")]
    pub api_key_env: Option<String>,
    /// The version that the Anthropic API is asked for
    #[arg(long, value_name = "DATE", default_value = "2023-06-01")]
    pub api_version: String,
    /// The most answers of the model
    #[arg(long, value_name = "N", default_value_t = 48, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_iterations: u32,
    /// The most tokens of one answer
    #[arg(long, value_name = "N", default_value_t = 8192, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_output_tokens: u32,
    /// Randomness [default: 0.2 for the OpenAI APIs, the provider's own for Anthropic]
    #[arg(long, value_name = "NUMBER")]
    pub temperature: Option<f64>,
    /// How hard the model should think, in the provider's words
    #[arg(long, value_name = "WORD")]
    pub effort: Option<String>,
    /// The tokens that the model can read at once [default: 128000, 200000 for Anthropic]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub context_tokens: Option<u64>,
    /// Keep the conversation in this file, secrets masked
    #[arg(long, value_name = "FILE")]
    pub transcript: Option<PathBuf>,
    /// Continue a conversation: its transcript, or its id if that lies beside --transcript
    #[arg(long, value_name = "FILE|ID")]
    pub resume: Option<String>,
    /// What may change; with read_only there are no tools that write or run
    #[arg(long, value_name = "PERMISSION", default_value = "workspace_write")]
    pub permission: Permission,
    /// No tool that runs commands
    #[arg(long)]
    pub no_shell: bool,
    /// Ask the model to use no network (advice: commands are not cut off from it)
    #[arg(long)]
    pub no_network: bool,
    /// The most seconds of one command
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub shell_timeout: u64,
    /// Seconds without a byte from the API until a request counts as failed
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub read_timeout: u64,
    /// How often a failed request is tried again
    #[arg(long, value_name = "N", default_value_t = 6)]
    pub max_retries: u32,
    /// The most seconds that one request waits for all its retries
    #[arg(long, value_name = "SECONDS", default_value_t = 180, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub max_retry_wait: u64,
    /// Milliseconds until the first retry; each further one waits twice as long
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub retry_delay: u64,
}

/// Which API to speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ApiChoice {
    /// OpenAI's, whichever of the two fits the base URL.
    Openai,
    /// OpenAI's Chat Completions, which most gateways and other providers speak too.
    OpenaiChat,
    /// OpenAI's Responses.
    OpenaiResponses,
    /// Anthropic's Messages.
    Anthropic,
}

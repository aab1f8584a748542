//! The server: takes requests apart and hands them on. Nothing here knows what a tool does.

use super::bell::Bell;
use super::subscribe::Subscriptions;
use super::tool::{Call, Fault, Kind, Tool};
use super::{clean, complete, extension, progress, prompts, resources, subscribe, tools};
use crate::model::input::nearest;
use crate::verbs::House;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, CompleteRequestParams,
    CompleteResult, ContentBlock, GetPromptRequestParams, GetPromptResponse, GetTaskParams, GetTaskResult,
    Implementation, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities,
    ServerConfig, SubscribeRequestParams, SubscriptionFilter, UnsubscribeRequestParams, UpdateTaskParams,
};
use rmcp::service::{RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Map, Value};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// What a planner is told before it sees the tools.
const INSTRUCTIONS: &str = "workspool hands coding tasks to workers (other coding agents, scripts) that work in \
    the background, each in a git worktree of its own. submit_task or submit_batch returns at once; wait_tasks \
    waits; get_task says what came out and what to do next; get_diff shows the change. Nothing reaches the \
    user's branch before it is accepted. The verify commands of a task are run apart from its worker: believe \
    them, and not the worker's summary. Large things are read on demand: get_log, get_diff, get_artifact.";

/// Serves one client. Cheap to clone.
#[derive(Clone)]
pub struct Server {
    spool: Option<PathBuf>,
    bell: Bell,
    gone: CancellationToken,
    activity: Activity,
    subscriptions: Subscriptions,
}

/// When the client last asked for something, and whether it waits for an answer.
#[derive(Clone)]
pub struct Activity {
    state: Arc<Mutex<(Instant, usize)>>,
}

/// A request that is being answered.
struct Busy(Activity);

impl Activity {
    fn new() -> Self {
        Activity { state: Arc::new(Mutex::new((Instant::now(), 0))) }
    }

    fn busy(&self) -> Busy {
        self.change(|n| n + 1);
        Busy(self.clone())
    }

    fn change(&self, change: impl FnOnce(usize) -> usize) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = (Instant::now(), change(state.1));
    }

    /// How long nothing was asked for; zero while something is being answered.
    pub fn idle_for(&self) -> Duration {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.1 > 0 { Duration::ZERO } else { state.0.elapsed() }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.change(|n| n.saturating_sub(1));
    }
}

/// Does blocking work beside the protocol: no call waits for another one's disk.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(e) => Err(Fault(format!("a fault of workspool itself: {e}"))),
    }
}

impl Server {
    /// Makes a server for a spool; `gone` says that the client has gone away.
    pub fn new(spool: Option<PathBuf>, gone: CancellationToken) -> Self {
        Server {
            spool,
            bell: Bell::new(),
            gone,
            activity: Activity::new(),
            subscriptions: Subscriptions::default(),
        }
    }

    /// When the client last asked for something.
    pub fn activity(&self) -> Activity {
        self.activity.clone()
    }

    /// What wakes whoever waits.
    pub(super) fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Says that the client has gone away.
    pub(super) fn gone(&self) -> &CancellationToken {
        &self.gone
    }

    /// Opens the spool for one call: what was changed in the meantime, the configuration too, holds.
    pub(super) async fn call(&self, client: Option<String>) -> Result<Call, Fault> {
        let spool = self.spool.clone();
        blocking(move || Ok(Call { house: House::open(spool)?, client, news: None })).await
    }

    async fn carry_out(
        &self,
        tool: &'static Tool,
        arguments: Map<String, Value>,
        context: &RequestContext<RoleServer>,
    ) -> Result<Value, Fault> {
        let exact = arguments.get("raw") == Some(&Value::Bool(true));
        let mut value = match &tool.kind {
            Kind::Waits => tools::wait::run(self, arguments, context).await?,
            Kind::Quick(body) => {
                let client = context.client_info().map(|c| format!("{} {}", c.name, c.version));
                let mut call = self.call(client).await?;
                let (news, heard) = tokio::sync::mpsc::unbounded_channel();
                call.news = Some(news);
                progress::during(context, heard, blocking(move || body(&call, arguments))).await?
            }
        };
        if !exact {
            clean::value(&mut value);
        }
        Ok(value)
    }
}

/// A fault as the planner reads it.
fn failed(fault: &Fault) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(clean::text(&fault.text()))])
}

/// A fault where the protocol has no room for a tool's own errors.
fn protocol_error(fault: &Fault) -> ErrorData {
    ErrorData::invalid_params(clean::text(&fault.text()), None)
}

/// A fault about a resource, with its address for the client to know it by.
fn no_resource(fault: &Fault, uri: &str) -> ErrorData {
    ErrorData::resource_not_found(clean::text(&fault.text()), Some(serde_json::json!({ "uri": uri })))
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_prompts()
            .enable_completions()
            .enable_tasks()
            .build();
        let about = "A spool of coding tasks and a runner that works them off";
        let implementation = Implementation::new("workspool", env!("CARGO_PKG_VERSION"))
            .with_title("workspool")
            .with_description(about);
        ServerConfig::new(capabilities).with_server_info(implementation).with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let _busy = self.activity.busy();
        Ok(ListToolsResult::with_all_items(tools::ALL.iter().map(Tool::listed).collect()))
    }

    fn get_tool(&self, name: &str) -> Option<rmcp::model::Tool> {
        tools::find(name).map(Tool::listed)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let _busy = self.activity.busy();
        let Some(tool) = tools::find(&request.name) else {
            let names: Vec<&str> = tools::ALL.iter().map(|t| t.name).collect();
            let hint = nearest(&request.name, &names).map(|n| format!("; did you mean {n}?"));
            let text = format!("tool not found: {}{}", request.name, hint.unwrap_or_default());
            return Err(ErrorData::invalid_params(text, None));
        };
        match self.carry_out(tool, request.arguments.unwrap_or_default(), &context).await {
            Ok(value) => {
                let modern = context.protocol_version().is_some_and(|v| !v.has_initialize());
                if modern
                    && context.client_capabilities().is_some_and(|c| c.supports_tasks())
                    && let Some(task) = extension::handle(self, tool.name, &value).await
                {
                    return Ok(task.into());
                }
                Ok(CallToolResult::structured(value).into())
            }
            Err(fault) => Ok(failed(&fault).into()),
        }
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let _busy = self.activity.busy();
        let call = self.call(None).await.map_err(|f| protocol_error(&f))?;
        let cursor = request.and_then(|r| r.cursor);
        blocking(move || resources::list(&call, cursor.as_deref())).await.map_err(|f| protocol_error(&f))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(resources::templates())
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let _busy = self.activity.busy();
        let call = self.call(None).await.map_err(|f| protocol_error(&f))?;
        let uri = request.uri.clone();
        let read = blocking(move || resources::read(&call, &uri)).await;
        read.map(Into::into).map_err(|fault| no_resource(&fault, &request.uri))
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(subscribe::accepted(requested))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let _busy = self.activity.busy();
        subscribe::listen(self, &context).await;
        Ok(())
    }

    #[allow(deprecated, reason = "clients of the older protocol know nothing else")]
    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let _busy = self.activity.busy();
        let added = self.subscriptions.add(self, request.uri.clone(), context.peer).await;
        added.map_err(|fault| no_resource(&fault, &request.uri))
    }

    #[allow(deprecated, reason = "clients of the older protocol know nothing else")]
    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let _busy = self.activity.busy();
        self.subscriptions.remove(&request.uri);
        Ok(())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let _busy = self.activity.busy();
        Ok(prompts::list())
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let _busy = self.activity.busy();
        let call = self.call(None).await.map_err(|f| protocol_error(&f))?;
        let arguments = request.arguments.unwrap_or_default();
        let prompt = blocking(move || prompts::get(&call, &request.name, &arguments)).await;
        prompt.map(Into::into).map_err(|f| protocol_error(&f))
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let _busy = self.activity.busy();
        let call = self.call(None).await.map_err(|f| protocol_error(&f))?;
        blocking(move || complete::complete(&call, &request)).await.map_err(|f| protocol_error(&f))
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        let _busy = self.activity.busy();
        extension::get(self, request.task_id).await.map_err(|f| protocol_error(&f))
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let _busy = self.activity.busy();
        // No task of ours asks its client for anything: there is nothing to take, but a task must be there.
        extension::get(self, request.task_id).await.map(drop).map_err(|f| protocol_error(&f))
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let _busy = self.activity.busy();
        extension::cancel(self, request.task_id).await.map_err(|f| protocol_error(&f))
    }
}

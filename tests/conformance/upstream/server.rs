//! The server's side of MCP: lists, reads, subscriptions, and the way to its tools.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CompleteRequestParams, CompleteResult, ErrorData, GetPromptRequestParams,
    GetPromptResponse, GetPromptResult, GetSkillRequestParams, GetSkillResult, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListSkillsResult, ListToolsResult, PaginatedRequestParams,
    ProtocolVersion, ReadResourceDirectoryRequestParams, ReadResourceRequestParams, ReadResourceResponse,
    ReadResourceResult, SKILLS_EXTENSION_ID, ServerConfig, SetLevelRequestParams, SubscribeRequestParams,
    SubscriptionFilter, Tool, UnsubscribeRequestParams,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::{RoleServer, ServerHandler};
use serde_json::json;
use tokio::sync::broadcast;

use crate::questions::{Conversation, Stop, form};
use crate::{catalog, skills, tools};

type Context = RequestContext<RoleServer>;

/// Which list has changed.
#[derive(Clone, Copy)]
pub(crate) enum Change {
    Tools,
    Prompts,
}

/// One server for all its sessions.
#[derive(Clone)]
pub(crate) struct Server {
    spoken: Vec<ProtocolVersion>,
    sessions: Arc<LocalSessionManager>,
    changes: broadcast::Sender<Change>,
    watched: Arc<Mutex<HashSet<String>>>,
}

impl Server {
    pub(crate) fn new(spoken: Vec<ProtocolVersion>, sessions: Arc<LocalSessionManager>) -> Self {
        Self { spoken, sessions, changes: broadcast::channel(16).0, watched: Arc::default() }
    }

    /// Tells everybody who wants to know.
    pub(crate) fn say(&self, change: Change) {
        drop(self.changes.send(change));
    }

    /// Closes the event streams of the calls of this session, which go on.
    pub(crate) async fn close_streams(&self, context: &Context) {
        let parts = context.extensions.get::<http::request::Parts>();
        let id = parts.and_then(|parts| parts.headers.get("mcp-session-id")).and_then(|id| id.to_str().ok());
        let Some(session) = self.sessions.sessions.read().await.get(id.unwrap_or_default()).cloned() else { return };
        for stream in 0..8 {
            drop(session.close_sse_stream(stream, None).await);
        }
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        serde_json::from_value(json!({
            "protocolVersion": self.supported_protocol_versions().last(),
            "capabilities": {
                "tools": {"listChanged": true},
                "prompts": {"listChanged": true},
                "resources": {"subscribe": true},
                "completions": {},
                "logging": {},
                "extensions": {SKILLS_EXTENSION_ID: {"directoryRead": true}},
            },
            "serverInfo": {"name": "conformance-upstream", "version": env!("CARGO_PKG_VERSION")},
        }))
        .expect("it is written here")
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        self.spoken.clone().into()
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let mut changes = self.changes.subscribe();
        tokio::spawn(async move {
            while let Ok(change) = changes.recv().await {
                let told = match change {
                    Change::Tools => context.peer.notify_tool_list_changed().await,
                    Change::Prompts => context.peer.notify_prompt_list_changed().await,
                };
                if told.is_err() {
                    return;
                }
            }
        });
    }

    async fn list_tools(&self, _: Option<PaginatedRequestParams>, _: Context) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(catalog::tools()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        catalog::tools().into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(&self, request: CallToolRequestParams, context: Context) -> Result<CallToolResponse, ErrorData> {
        tools::call(self, request, &context).await
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(ListPromptsResult::with_all_items(catalog::prompts()))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: Context,
    ) -> Result<GetPromptResponse, ErrorData> {
        let argument = |name: &str| {
            let value = request.arguments.as_ref().and_then(|arguments| arguments.get(name));
            value.and_then(|value| value.as_str()).unwrap_or_default().to_owned()
        };
        if request.name == "test_input_required_result_prompt" {
            return asking_prompt(request, &context).await;
        }
        let messages = catalog::messages(&request.name, argument)
            .ok_or_else(|| ErrorData::invalid_params(format!("there is no prompt {}", request.name), None))?;
        Ok(prompt(&messages).into())
    }

    async fn complete(&self, request: CompleteRequestParams, _: Context) -> Result<CompleteResult, ErrorData> {
        let begun = request.argument.value;
        let values: Vec<_> = ["paris", "park", "party"].into_iter().filter(|value| value.starts_with(&begun)).collect();
        let completion = json!({"resultType": "complete", "completion": {"values": values, "total": values.len(), "hasMore": false}});
        Ok(serde_json::from_value(completion).expect("it is written here"))
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListResourcesResult, ErrorData> {
        let mut resources = catalog::resources();
        resources.push(skills::manifest());
        Ok(ListResourcesResult::with_all_items(resources))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(catalog::templates()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: Context,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let contents = catalog::contents(&request.uri).or_else(|| skills::contents(&request.uri)).ok_or_else(|| {
            ErrorData::resource_not_found("there is no such resource", Some(json!({"uri": request.uri})))
        })?;
        let result: ReadResourceResult =
            serde_json::from_value(json!({"resultType": "complete", "contents": contents}))
                .expect("it is written here");
        Ok(result.into())
    }

    async fn list_skills(&self, _: Option<PaginatedRequestParams>, _: Context) -> Result<ListSkillsResult, ErrorData> {
        Ok(ListSkillsResult::with_all_items(vec![skills::skill()]))
    }

    async fn get_skill(&self, request: GetSkillRequestParams, _: Context) -> Result<GetSkillResult, ErrorData> {
        let skill = skills::skill();
        if skill.uri == request.uri {
            Ok(GetSkillResult::new(skill))
        } else {
            Err(ErrorData::invalid_params("there is no such skill", None))
        }
    }

    async fn read_resource_directory(
        &self,
        request: ReadResourceDirectoryRequestParams,
        _: Context,
    ) -> Result<ListResourcesResult, ErrorData> {
        let resources = skills::folder(&request.uri);
        let resources = resources.ok_or_else(|| ErrorData::invalid_params("there is no such folder", None))?;
        Ok(ListResourcesResult::with_all_items(resources))
    }

    async fn subscribe(&self, request: SubscribeRequestParams, _: Context) -> Result<(), ErrorData> {
        self.watched.lock().expect("nothing panics with it").insert(request.uri);
        Ok(())
    }

    async fn unsubscribe(&self, request: UnsubscribeRequestParams, _: Context) -> Result<(), ErrorData> {
        self.watched.lock().expect("nothing panics with it").remove(&request.uri);
        Ok(())
    }

    async fn set_level(&self, _: SetLevelRequestParams, _: Context) -> Result<(), ErrorData> {
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, subscription: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.changes.subscribe();
        loop {
            let change = tokio::select! {
                change = changes.recv() => change,
                () = subscription.cancelled() => return Ok(()),
            };
            // What the client did not ask for, the sink keeps back.
            match change {
                Ok(Change::Tools) => drop(subscription.sink().notify_tool_list_changed().await),
                Ok(Change::Prompts) => drop(subscription.sink().notify_prompt_list_changed().await),
                Err(_) => return Ok(()),
            }
        }
    }
}

fn prompt(messages: &serde_json::Value) -> GetPromptResult {
    serde_json::from_value(json!({"resultType": "complete", "messages": messages}))
        .expect("it is written in this server")
}

async fn asking_prompt(request: GetPromptRequestParams, context: &Context) -> Result<GetPromptResponse, ErrorData> {
    let state = request.request_state.as_deref();
    let asked = match Conversation::resume(context, &request.name, request.input_responses, state) {
        Ok(mut conversation) => {
            let question = form("What context should the prompt use?", &json!({"context": {"type": "string"}}));
            conversation.ask(vec![("user_context", question)]).await
        }
        Err(stop) => Err(stop),
    };
    match asked {
        Ok(answers) => {
            let text = format!("Prompt in this context: {}", json!(answers));
            Ok(prompt(&json!([{"role": "user", "content": {"type": "text", "text": text}}])).into())
        }
        Err(Stop::Unfinished(questions)) => Ok(questions.into()),
        Err(Stop::Refused(error)) => Err(error),
        Err(Stop::Failed(why)) => Err(ErrorData::internal_error(why, None)),
    }
}

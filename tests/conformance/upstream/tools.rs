//! What each tool does.

use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ErrorData, LoggingLevel,
    LoggingMessageNotificationParam, ProgressNotificationParam,
};
use rmcp::service::RequestContext;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::catalog::{IMAGE, SOUND};
use crate::questions::{Conversation, Stop, form, prompt, roots};
use crate::server::{Change, Server};

/// How long the slow tools work: longer than any threshold that the suite can live with.
const WORK: Duration = Duration::from_secs(1);
/// Between two signs of life.
const STEP: Duration = Duration::from_millis(50);

type Done = Result<Value, Stop>;

/// Answers a call in full: a tool that fails is a result, too.
pub(crate) async fn call(
    server: &Server,
    mut request: CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let (given, state) = (request.input_responses.take(), request.request_state.take());
    let mut call = match Conversation::resume(context, &request.name, given, state.as_deref()) {
        Ok(conversation) => Call { server, context, conversation, request },
        Err(stop) => return answer(Err(stop)),
    };
    answer(call.run().await)
}

fn answer(done: Done) -> Result<CallToolResponse, ErrorData> {
    let content = match done {
        Ok(content) => json!({"resultType": "complete", "content": content}),
        Err(Stop::Failed(why)) => json!({"resultType": "complete", "content": text(why), "isError": true}),
        Err(Stop::Unfinished(questions)) => return Ok(questions.into()),
        Err(Stop::Refused(error)) => return Err(error),
    };
    let result: CallToolResult = serde_json::from_value(content).expect("it is written in this file");
    Ok(result.into())
}

fn text(text: impl Into<String>) -> Value {
    json!([{"type": "text", "text": text.into()}])
}

struct Call<'a> {
    server: &'a Server,
    context: &'a RequestContext<RoleServer>,
    conversation: Conversation,
    request: CallToolRequestParams,
}

impl Call<'_> {
    async fn run(&mut self) -> Done {
        match &*self.request.name.clone() {
            "test_simple_text" => Ok(text("This is a simple text response for testing.")),
            "test_image_content" => Ok(json!([image()])),
            "test_audio_content" => Ok(json!([{"type": "audio", "data": SOUND, "mimeType": "audio/wav"}])),
            "test_embedded_resource" => {
                Ok(json!([resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")]))
            }
            "test_multiple_content_types" => Ok(json!([
                {"type": "text", "text": "Multiple content types test:"},
                image(),
                resource("test://mixed-content-resource", "application/json", r#"{"test":"data","value":123}"#),
            ])),
            "test_error_handling" => Err(Stop::Failed("This tool intentionally returns an error for testing".into())),
            "json_schema_2020_12_tool" | "test_custom_header" => Ok(text(json!(self.request.arguments).to_string())),
            "greet" => Ok(text(format!("Hello, {}!", self.argument("name")))),
            "test_trigger_tool_change" => Ok(self.changed(Change::Tools)),
            "test_trigger_prompt_change" => Ok(self.changed(Change::Prompts)),
            "test_reconnection" => self.close_and_answer().await,
            "test_tool_with_progress" => self.report().await,
            "test_tool_with_logging" => {
                self.log(&["Tool execution started", "Tool processing data", "Tool execution completed"]).await
            }
            "test_logging_tool" => self.log(&["Tool execution"]).await,
            "slow_compute" | "failing_job" | "protocol_error_job" => self.work().await,
            "confirm_delete" | "multi_input" | "test_tool_with_task" => self.work_and_ask().await,
            name if name.starts_with("test_") => self.ask(name).await,
            name => Err(Stop::Refused(ErrorData::invalid_params(format!("there is no tool {name}"), None))),
        }
    }

    fn argument(&self, name: &str) -> String {
        let value = self.request.arguments.as_ref().and_then(|arguments| arguments.get(name));
        value.and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    fn changed(&self, change: Change) -> Value {
        self.server.say(change);
        text("The list has changed.")
    }

    /// Waits as a tool does that can be told to stop.
    async fn wait(&self, time: Duration) -> Result<(), Stop> {
        tokio::select! {
            () = sleep(time) => Ok(()),
            () = self.context.ct.cancelled() => Err(Stop::Failed("cancelled".to_owned())),
        }
    }

    /// The SDK loses what it answers while nobody listens, so a client has time to come back.
    async fn close_and_answer(&self) -> Done {
        self.server.close_streams(self.context).await;
        sleep(WORK).await;
        Ok(text("Reconnection test completed"))
    }

    async fn report(&self) -> Done {
        let token = self.context.meta.get_progress_token();
        for done in [0.0, 50.0, 100.0] {
            if let Some(token) = token.clone() {
                let progress = ProgressNotificationParam::new(token, done).with_total(100.0);
                drop(self.context.peer.notify_progress(progress).await);
            }
            sleep(STEP).await;
        }
        Ok(text("Progress test completed"))
    }

    /// Logs, in the stateless era only for requests that want it.
    async fn log(&self, lines: &[&str]) -> Done {
        for line in lines {
            if !self.conversation.stateless || self.context.meta.log_level().is_some() {
                let line = LoggingMessageNotificationParam::new(LoggingLevel::Info, json!(line));
                drop(self.context.peer.notify_logging_message(line).await);
            }
            sleep(STEP).await;
        }
        Ok(text("Logging test completed"))
    }

    async fn work(&self) -> Done {
        let seconds = self.request.arguments.as_ref().and_then(|arguments| arguments.get("seconds"));
        let time = seconds.and_then(Value::as_f64).map_or(WORK, Duration::from_secs_f64);
        self.wait(time).await?;
        match &*self.request.name {
            "failing_job" => Err(Stop::Failed("The job failed.".to_owned())),
            "protocol_error_job" => Err(Stop::Refused(ErrorData::internal_error("the job broke", None))),
            _ => Ok(text(format!("Computed {}", self.argument("label")))),
        }
    }

    async fn work_and_ask(&mut self) -> Done {
        let confirm = json!({"confirm": {"type": "boolean"}});
        let name = json!({"name": {"type": "string"}});
        if self.request.name == "test_tool_with_task" {
            let answers = self.conversation.ask(vec![("user_name", form("What is your name?", &name))]).await?;
            self.wait(WORK).await?;
            let name = answers.get("user_name").and_then(|answer| answer["content"]["name"].as_str());
            return Ok(text(format!("Hello, {}!", name.unwrap_or("stranger"))));
        }
        self.wait(WORK).await?;
        let questions = if self.request.name == "multi_input" {
            vec![("name", form("What is its name?", &name)), ("confirm", form("Go on?", &confirm))]
        } else {
            vec![("confirm", form(&format!("Delete {}?", self.argument("filename")), &confirm))]
        };
        let answers = self.conversation.ask(questions).await?;
        Ok(text(format!("The answers were {}", json!(answers))))
    }

    /// The tools that ask at once.
    async fn ask(&mut self, name: &str) -> Done {
        let abilities = &self.conversation.abilities;
        let (samples, asks) = (abilities.sampling.is_some(), abilities.elicitation.is_some());
        let name_form = || form("What is your name?", &json!({"name": {"type": "string"}}));
        let ok_form = || form("Please confirm", &json!({"ok": {"type": "boolean"}}));
        let questions = match name {
            "test_missing_capability" if !samples => return Err(self.missing()),
            "test_missing_capability" => vec![("answer", prompt("Are you there?"))],
            "test_sampling" => vec![("answer", prompt(&self.argument("prompt")))],
            "test_elicitation" => {
                let properties = json!({
                    "username": {"type": "string", "description": "User's response"},
                    "email": {"type": "string", "description": "User's email address"},
                });
                vec![("answer", form(&self.argument("message"), &properties))]
            }
            "test_elicitation_sep1034_defaults" => vec![("answer", defaults())],
            "test_elicitation_sep1330_enums" => vec![("answer", choices())],
            "test_input_required_result_sampling" => {
                vec![("capital_question", prompt("What is the capital of France?"))]
            }
            "test_input_required_result_list_roots" => vec![("client_roots", roots())],
            "test_input_required_result_request_state" | "test_input_required_result_tampered_state" => {
                vec![("confirm", ok_form())]
            }
            "test_input_required_result_multiple_inputs" => {
                vec![("user_name", name_form()), ("greeting", prompt("Generate a greeting")), ("client_roots", roots())]
            }
            "test_input_required_result_multi_round" => return self.ask_twice().await,
            "test_input_required_result_capabilities" => {
                let mut able = vec![("greeting", prompt("Generate a greeting")), ("user_name", name_form())];
                able.retain(|(name, _)| if *name == "greeting" { samples } else { asks });
                able
            }
            "test_streaming_elicitation" | "test_input_required_result_elicitation" => vec![("user_name", name_form())],
            _ => return Err(Stop::Refused(ErrorData::invalid_params(format!("there is no tool {name}"), None))),
        };
        let answers = self.conversation.ask(questions).await?;
        Ok(text(said(name, &json!(answers))))
    }

    async fn ask_twice(&mut self) -> Done {
        let name = form("Step 1: What is your name?", &json!({"name": {"type": "string"}}));
        self.conversation.ask(vec![("step1", name)]).await?;
        let color = form("Step 2: What is your favorite color?", &json!({"color": {"type": "string"}}));
        let answers = self.conversation.ask(vec![("step2", color)]).await?;
        Ok(text(json!(answers).to_string()))
    }

    /// The code exists in the stateless era only; before, the tool fails.
    fn missing(&self) -> Stop {
        if self.conversation.stateless {
            let sampling: ClientCapabilities = serde_json::from_value(json!({"sampling": {}})).expect("it is one");
            Stop::Refused(ErrorData::missing_required_client_capability(sampling))
        } else {
            Stop::Failed("The client does not support sampling.".to_owned())
        }
    }
}

fn image() -> Value {
    json!({"type": "image", "data": IMAGE, "mimeType": "image/png"})
}

fn resource(uri: &str, kind: &str, text: &str) -> Value {
    json!({"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": text}})
}

/// The sentence in which the suite looks for the answer.
fn said(tool: &str, answers: &Value) -> String {
    let answer = &answers["answer"];
    match tool {
        "test_sampling" => format!("LLM response: {}", answer["content"]["text"].as_str().unwrap_or_default()),
        "test_elicitation" => format!("User response: action={}, content={}", answer["action"], answer["content"]),
        "test_elicitation_sep1034_defaults" | "test_elicitation_sep1330_enums" => {
            format!("Elicitation completed: action={}, content={}", answer["action"], answer["content"])
        }
        _ => format!("state-ok {answers}"),
    }
}

fn defaults() -> Value {
    let properties = json!({
        "name": {"type": "string", "description": "User name", "default": "John Doe"},
        "age": {"type": "integer", "description": "User age", "default": 30},
        "score": {"type": "number", "description": "User score", "default": 95.5},
        "status": {"type": "string", "description": "User status", "enum": ["active", "inactive", "pending"],
                   "default": "active"},
        "verified": {"type": "boolean", "description": "Verification status", "default": true},
    });
    form("Please provide values", &properties)
}

fn choices() -> Value {
    let titled =
        |titles: [(&str, &str); 3]| titles.map(|(value, title)| json!({"const": value, "title": title})).to_vec();
    let values = [("value1", "First Option"), ("value2", "Second Option"), ("value3", "Third Option")];
    let several = [("value1", "First Choice"), ("value2", "Second Choice"), ("value3", "Third Choice")];
    let options = json!(["option1", "option2", "option3"]);
    let properties = json!({
        "untitledSingle": {"type": "string", "enum": options},
        "titledSingle": {"type": "string", "oneOf": titled(values)},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"],
                       "enumNames": ["Option One", "Option Two", "Option Three"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled(several)}},
    });
    form("Please choose", &properties)
}

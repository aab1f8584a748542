//! The scripted server itself, where our own worker does not use it.

use super::modelserver::ModelServer;
use serde_json::{Value, json};

fn post(url: &str, body: &Value) -> (u16, String) {
    let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
    let mut response = agent.post(url).send_json(body).unwrap();
    (response.status().as_u16(), response.body_mut().read_to_string().unwrap())
}

#[test]
fn it_speaks_gemini() {
    let server = ModelServer::start();
    let tools = json!([{"functionDeclarations": [{"name": "write_file",
        "parameters": {"properties": {"file_path": {}, "content": {}}}}]}]);
    let order = json!({"role": "user", "parts": [{"text": "please [[WRITE a.txt]]"}]});
    let url = format!("{}/v1beta/models/scripted:streamGenerateContent?alt=sse", server.url("write"));
    let (status, text) = post(&url, &json!({"contents": [order], "tools": tools}));
    assert_eq!(status, 200);
    let answer: Value = serde_json::from_str(text.trim().strip_prefix("data: ").unwrap()).unwrap();
    let call = &answer["candidates"][0]["content"]["parts"][0]["functionCall"];
    assert_eq!(call["name"], "write_file");
    assert_eq!(call["args"]["file_path"], "a.txt");
    assert_eq!(answer["usageMetadata"]["cachedContentTokenCount"], json!(300));

    let result = json!({"role": "user", "parts": [{"functionResponse": {"name": "write_file"}}]});
    let url = format!("{}/v1beta/models/scripted:generateContent", server.url("write"));
    let (_, text) = post(&url, &json!({"contents": [order, result], "tools": tools}));
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        answer["candidates"][0]["content"]["parts"][0]["text"],
        "DONE: the scripted task is finished."
    );

    let url = format!("{}/v1beta/models/scripted:streamGenerateContent?alt=sse", server.url("err429"));
    let (status, text) = post(&url, &json!({"contents": []}));
    assert!(status == 429 && text.contains("RESOURCE_EXHAUSTED"), "{text}");
}

#[test]
fn it_answers_what_real_programs_ask_besides() {
    let server = ModelServer::start();
    let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
    assert_eq!(agent.head(format!("{}/api/hello", server.url("x"))).call().unwrap().status(), 200);
    let mut models = agent.get(format!("{}/v1/models?limit=5", server.url("x"))).call().unwrap();
    assert_eq!(models.body_mut().read_json::<Value>().unwrap()["data"][0]["id"], "scripted");
    let socket = agent.get(format!("{}/v1/responses", server.url("x"))).header("upgrade", "websocket");
    assert_eq!(socket.call().unwrap().status(), 426);
    let (status, text) = post(&format!("{}/v1/messages/count_tokens", server.url("err401")), &json!({}));
    assert_eq!((status, text.as_str()), (200, r#"{"input_tokens":123}"#));
    assert!(server.seen("x").is_empty());
}

#[test]
fn a_tool_of_each_program_is_called_by_its_name() {
    let server = ModelServer::start();
    let url = format!("{}/v1/responses", server.url("write"));
    for (tool, prompt, key) in [
        (json!({"type": "function", "name": "exec_command"}), "[[RUN ls]]", "cmd"),
        (json!({"type": "function", "name": "exec_command"}), "[[WRITE a.txt]]", "cmd"),
        (json!({"type": "function", "name": "Bash"}), "[[RUN ls]]", "command"),
        (json!({"type": "function", "name": "run_shell_command"}), "[[RUN ls]]", "is_background"),
        (
            json!({"type": "function", "name": "write", "parameters": {"filePath": 1}}),
            "[[WRITE a.txt]]",
            "filePath",
        ),
        (json!({"type": "function", "name": "other"}), "[[CALL other {\"x\": 1}]]", "x"),
    ] {
        let (_, text) = post(&url, &json!({"input": prompt, "tools": [tool]}));
        let answer: Value = serde_json::from_str(&text).unwrap();
        let call = &answer["output"][0];
        assert_eq!(call["name"], tool["name"], "{answer}");
        let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
        assert!(arguments.get(key).is_some(), "{arguments}");
    }
    let (_, text) = post(
        &format!("{}/v1/responses", server.url("patch")),
        &json!({"input": "go", "tools": [{"type": "custom", "name": "apply_patch"}]}),
    );
    assert!(text.contains("custom_tool_call") && text.contains("*** Add File: patched.txt"), "{text}");
}

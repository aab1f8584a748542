//! As much HTTP as model clients speak.

use serde_json::Value;
use std::collections::HashMap;
use std::io::{self, BufRead, Read as _, Write};

pub struct Request {
    pub method: String,
    pub path: String,
    pub headers: HashMap<String, String>,
    pub body: Vec<u8>,
}

/// Reads a request; `None` at the end of the connection.
pub fn read(reader: &mut impl BufRead) -> io::Result<Option<Request>> {
    let Some(first) = line(reader)? else { return Ok(None) };
    let mut words = first.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut headers = HashMap::new();
    while let Some(line) = line(reader)?.filter(|l| !l.is_empty()) {
        if let Some((name, value)) = line.split_once(':') {
            headers.insert(name.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    let mut body = Vec::new();
    if headers.get("transfer-encoding").is_some_and(|v| v.contains("chunked")) {
        while let Some(size) = line(reader)? {
            let size = u64::from_str_radix(size.split(';').next().unwrap_or_default().trim(), 16)
                .map_err(|e| io::Error::other(e.to_string()))?;
            reader.by_ref().take(size).read_to_end(&mut body)?;
            line(reader)?;
            if size == 0 {
                break;
            }
        }
    } else if let Some(size) = headers.get("content-length").and_then(|v| v.parse().ok()) {
        reader.by_ref().take(size).read_to_end(&mut body)?;
    }
    Ok(Some(Request { method: method.to_owned(), path: path.to_owned(), headers, body }))
}

fn line(reader: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    reader.read_until(b'\n', &mut line)?;
    let text = String::from_utf8_lossy(&line).trim_end().to_owned();
    Ok((!line.is_empty()).then_some(text))
}

/// Sends a whole body of JSON.
pub fn json(
    stream: &mut impl Write,
    status: u16,
    headers: &[(String, String)],
    body: &Value,
) -> io::Result<()> {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let mut head = format!(
        "HTTP/1.1 {status} Scripted\r\ncontent-type: application/json\r\ncontent-length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all(format!("{head}\r\n{body}").as_bytes())?;
    stream.flush()
}

/// Sends bytes that end with the connection.
pub fn raw(stream: &mut impl Write, kind: &str, body: &[u8]) -> io::Result<()> {
    write!(stream, "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n")?;
    stream.write_all(body)?;
    stream.flush()
}

/// Sends events, in pieces of `chunk` bytes if that is asked for, which end with the connection.
pub fn events(stream: &mut impl Write, events: &[(String, String)], chunk: Option<usize>) -> io::Result<()> {
    let mut text = String::new();
    for (name, data) in events {
        if !name.is_empty() {
            text.push_str(&format!("event: {name}\n"));
        }
        text.push_str(&format!("data: {data}\n\n"));
    }
    raw(stream, "text/event-stream", b"")?;
    for piece in text.as_bytes().chunks(chunk.unwrap_or(usize::MAX)) {
        stream.write_all(piece)?;
        stream.flush()?;
    }
    Ok(())
}

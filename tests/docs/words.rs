//! The command lines of workspool in a line of shell, as far as documents need it: quotes, backslashes, and
//! what ends a command. Variables and substitutions stay as they are written.

/// The arguments of each command `workspool …` in a line.
pub fn commands(line: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut now: Vec<String> = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = line.chars().peekable();
    let mut skip_next = false;
    while let Some(c) = chars.next() {
        match c {
            '\'' => word.get_or_insert_default().extend(chars.by_ref().take_while(|c| *c != '\'')),
            '"' => {
                let word = word.get_or_insert_default();
                while let Some(c) = chars.next().filter(|c| *c != '"') {
                    word.push(if c == '\\' { chars.next().unwrap_or(c) } else { c });
                }
            }
            '\\' => word.get_or_insert_default().extend(chars.next()),
            '#' if word.is_none() => break,
            ' ' | '\t' => end_of_word(&mut word, &mut now, &mut skip_next),
            '|' | ';' | '&' | '(' | ')' | '`' => {
                end_of_word(&mut word, &mut now, &mut skip_next);
                found.extend(ours(&std::mem::take(&mut now)));
            }
            '>' | '<' => {
                // A number before it is a descriptor; the word after it is a file.
                if word.as_ref().is_none_or(|w| !w.chars().all(|c| c.is_ascii_digit())) {
                    end_of_word(&mut word, &mut now, &mut skip_next);
                }
                word = None;
                while chars.next_if(|c| matches!(c, '>' | '<' | '&')).is_some() {}
                skip_next = true;
            }
            c => word.get_or_insert_default().push(c),
        }
    }
    end_of_word(&mut word, &mut now, &mut skip_next);
    found.extend(ours(&now));
    found
}

fn end_of_word(word: &mut Option<String>, words: &mut Vec<String>, skip: &mut bool) {
    if let Some(word) = word.take()
        && !std::mem::take(skip)
    {
        words.push(word);
    }
}

/// The words from `workspool` on, where that is the program that a command runs.
fn ours(words: &[String]) -> Option<Vec<String>> {
    // Handed to another program, which is told where its own arguments end.
    if let Some(at) = words.windows(2).position(|two| two == ["--", "workspool"]) {
        return Some(words[at + 1..].to_vec());
    }
    let at = words.iter().position(|w| w == "workspool")?;
    // Before it may stand variables, a prompt, another program that starts it, or the times of a crontab.
    let before = |w: &String| {
        w.contains('=') || w == "*" || ["$", "sudo", "exec", "timeout", "!", "time"].contains(&w.as_str())
    };
    words[..at].iter().all(before).then(|| words[at..].to_vec())
}

#[test]
fn commands_are_found_in_lines_of_shell() {
    let words = |line: &str| -> Vec<String> { commands(line).into_iter().map(|w| w.join("|")).collect() };
    assert_eq!(words("workspool list # all"), ["workspool|list"]);
    assert_eq!(words("A=1 workspool submit 'a b' \"c \\\" d\" e\\ f"), ["workspool|submit|a b|c \" d|e f"]);
    assert_eq!(words("* * * * * workspool tick"), ["workspool|tick"]);
    assert_eq!(
        words("x=$(workspool show $t | jq -r .id) && workspool diff $t > a.patch 2>&1"),
        ["workspool|show|$t", "workspool|diff|$t"]
    );
    assert_eq!(words("planner add workspool -- workspool mcp"), ["workspool|mcp"]);
    assert_eq!(words("ls workspool"), [] as [String; 0]);
}

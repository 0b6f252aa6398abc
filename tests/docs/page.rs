//! The blocks of a page.

/// A fenced block that is run, or would be.
#[derive(Debug)]
pub(crate) struct Block {
    /// Where its first line is, from 1.
    pub(crate) line: usize,
    pub(crate) kind: Kind,
    /// Whether a number may be another.
    pub(crate) numbers_vary: bool,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Script(String),
    Console(Vec<Command>),
    Background(Command),
    /// What appears in the output of the latest background command.
    Log(Vec<String>),
    /// Ctrl-C in the terminal of the latest background command.
    Interrupt,
    NotRun,
}

/// A command, and what it prints.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) line: usize,
    pub(crate) text: String,
    pub(crate) shown: Vec<String>,
}

const SHELLS: [&str; 4] = ["sh", "bash", "shell", "zsh"];

/// Returns the blocks of a page that are of a shell, or says which cannot be read, beginning with its line.
pub(crate) fn blocks(text: &str) -> Result<Vec<Block>, String> {
    let mut blocks = Vec::new();
    let mut lines = (1..).zip(text.lines());
    while let Some((number, line)) = lines.next() {
        let Some(info) = line.trim_start().strip_prefix("```") else { continue };
        let indent = line.len() - line.trim_start().len();
        let inner: Vec<&str> = lines
            .by_ref()
            .map(|(_, line)| line)
            .take_while(|line| line.trim() != "```")
            .map(|line| line.get(indent..).unwrap_or_default())
            .collect();
        let block = block(number + 1, info.trim(), &inner);
        blocks.extend(block.map_err(|wrong| format!("{number}: {wrong}"))?);
    }
    Ok(blocks)
}

/// Returns the blocks of a page in YAML with their first lines.
pub(crate) fn yaml(text: &str) -> Vec<(usize, String)> {
    let mut blocks = Vec::new();
    let mut lines = (1..).zip(text.lines());
    while let Some((number, line)) = lines.next() {
        if line.trim_start().starts_with("```yaml") {
            let indent = line.len() - line.trim_start().len();
            let inner = lines.by_ref().map(|(_, line)| line);
            let inner = inner.take_while(|line| line.trim() != "```");
            let inner: Vec<_> = inner.map(|line| line.get(indent..).unwrap_or_default()).collect();
            blocks.push((number + 1, inner.join("\n")));
        }
    }
    blocks
}

fn block(line: usize, info: &str, inner: &[&str]) -> Result<Option<Block>, String> {
    let (language, options) = info.split_once(' ').unwrap_or((info, ""));
    let is_console = language == "console";
    if !is_console && !SHELLS.contains(&language) {
        if language == "text" && options == "ctrl-c" {
            return Ok(Some(Block { line, kind: Kind::Interrupt, numbers_vary: false }));
        }
        let is_log = language == "text" && options == "log";
        if !is_log && inner.first().is_some_and(|line| line.starts_with("$ ")) {
            return Err("a block with commands is ```console, so that a test runs it".to_owned());
        }
        let lines = || inner.iter().map(|line| (*line).to_owned()).collect();
        let log = is_log.then(|| Block { line, kind: Kind::Log(lines()), numbers_vary: false });
        return Ok(log);
    }
    if let Some(reason) = options.strip_prefix("no-run:") {
        let has_reason = reason.trim().len() > 3;
        let block = Block { line, kind: Kind::NotRun, numbers_vary: false };
        return if has_reason {
            Ok(Some(block))
        } else {
            Err("`no-run:` needs a reason".to_owned())
        };
    }
    let words: Vec<_> = options.split_whitespace().collect();
    if let Some(word) = words.iter().find(|word| !["background", "numbers-vary"].contains(*word)) {
        return Err(format!("`{word}` says nothing about a block"));
    }
    let is_background = words.contains(&"background");
    let kind = if is_console {
        let mut commands = commands(line, inner)?;
        if is_background {
            let command = commands.pop().filter(|_| commands.is_empty());
            let command = command.filter(|command| !command.shown.is_empty());
            Kind::Background(command.ok_or("one command, and a line that says it is ready")?)
        } else {
            Kind::Console(commands)
        }
    } else if is_background {
        return Err("write ```console background, with the line that says it is ready".to_owned());
    } else {
        Kind::Script(inner.join("\n"))
    };
    Ok(Some(Block { line, kind, numbers_vary: words.contains(&"numbers-vary") }))
}

fn commands(line: usize, inner: &[&str]) -> Result<Vec<Command>, String> {
    let mut commands: Vec<Command> = Vec::new();
    for (line, text) in (line..).zip(inner) {
        if let Some(text) = text.strip_prefix("$ ") {
            commands.push(Command { line, text: text.to_owned(), shown: Vec::new() });
            continue;
        }
        let command = commands.last_mut().ok_or("a ```console begins with `$ `")?;
        match text.strip_prefix("> ").filter(|_| command.shown.is_empty()) {
            Some(more) => command.text = format!("{}\n{more}", command.text),
            None => command.shown.push((*text).to_owned()),
        }
    }
    if commands.is_empty() { Err("there is no command".to_owned()) } else { Ok(commands) }
}

#[test]
fn blocks_are_read_by_their_fences() {
    let page = "\
text
```yaml
a: 1
```
  ```console numbers-vary
  $ echo a \\
  > b
  a b
  $ true
  ```
```sh no-run: installs
apt-get
```
```console background
$ flowgate demo
ready
```
```text log
reloaded
```
```text
picture
```
";
    let blocks = blocks(page).expect("it is well-formed");
    let kinds: Vec<_> = blocks.iter().map(|block| (block.line, &block.kind)).collect();
    let [
        (6, Kind::Console(two)),
        (12, Kind::NotRun),
        (15, Kind::Background(demo)),
        (19, Kind::Log(log)),
    ] = &kinds[..]
    else {
        panic!("{kinds:?}")
    };
    assert!(blocks[0].numbers_vary && !blocks[2].numbers_vary);
    assert_eq!(
        (two[0].text.as_str(), &two[0].shown[..]),
        ("echo a \\\nb", &["a b".to_owned()][..])
    );
    assert_eq!((two[1].line, two[1].shown.len()), (9, 0));
    assert_eq!((demo.text.as_str(), log.len()), ("flowgate demo", 1));
}

#[test]
fn a_block_that_no_test_would_run_is_an_error() {
    for (page, wrong) in [
        ("```text\n$ true\n```\n", "1: a block with commands is ```console"),
        ("```sh no-run:\n```\n", "1: `no-run:` needs a reason"),
        ("a\n```sh norun\n```\n", "2: `norun` says nothing about a block"),
        ("```console\necho a\n```\n", "1: a ```console begins with `$ `"),
        ("```console background\n$ flowgate demo\n```\n", "1: one command, and a line"),
        ("```sh background\nflowgate demo\n```\n", "1: write ```console background"),
    ] {
        let said = blocks(page).err().unwrap_or_default();
        assert!(said.starts_with(wrong), "{page}: {said}");
    }
}

//! Shell completions and manual pages, made of the definition of the command line.

use super::Cli;
use clap::CommandFactory;
use clap_complete::{Shell, generate};
use clap_mangen::Man;
use std::io;

/// Returns the script that has `shell` complete commands, options and their values.
pub fn completions(shell: Shell) -> String {
    let mut script = Vec::new();
    generate(shell, &mut Cli::command(), "flowgate", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Returns the manual page of a command, or of flowgate as a whole, for `man -l -`.
///
/// `None` if there is no such command.
///
/// # Errors
/// None in practice: the page is written to memory.
pub fn page(command: Option<&str>) -> io::Result<Option<String>> {
    let mut whole = Cli::command().disable_help_subcommand(true);
    // It gives commands the names that they are called by.
    whole.build();
    let of = match command {
        Some(name) => whole.find_subcommand(name).cloned(),
        None => Some(whole),
    };
    let Some(of) = of else { return Ok(None) };
    let mut page = Vec::new();
    Man::new(of).render(&mut page)?;
    Ok(Some(String::from_utf8_lossy(&page).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn every_shell_completes_every_command() {
        let cli = Cli::command();
        for shell in Shell::value_variants() {
            let script = completions(*shell);
            for command in cli.get_subcommands() {
                let name = command.get_name();
                assert!(script.contains(name), "{shell}: {name}");
            }
            assert!(script.contains("deny-warnings"), "{shell}");
        }
    }

    #[test]
    fn every_command_has_a_page_and_the_first_page_names_it() {
        let page = |name| page(name).expect("in memory");
        let cli = Cli::command();
        let whole = page(None).expect("there is one");
        assert!(whole.contains(".TH flowgate 1") && whole.contains("Exit codes"), "{whole}");
        for command in cli.get_subcommands() {
            let name = command.get_name();
            assert!(whole.contains(&format!("flowgate\\-{name}(1)")), "{name}: {whole}");
            let own = page(Some(name)).expect("there is one");
            assert!(own.contains(&format!(".TH flowgate-{name} 1")), "{own}");
            assert!(own.contains("Example"), "{own}");
        }
        assert_eq!(page(Some("nonsense")), None);
    }
}

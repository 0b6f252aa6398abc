//! The admin listener: nobody may ask it unknown, unless it is on loopback.

use super::compiler::Compiler;
use crate::config::{
    decode::{At, Key},
    diagnostics::{Lint, Problem, quoted},
    plan::{Admin, AdminTls},
    read::source::Files,
    spec::{AdminSpec, AdminTlsSpec, CertificateFiles, Secret, leaf},
};
use std::net::SocketAddr;

impl Compiler {
    pub(super) fn admin(&mut self, key: &Key<AdminSpec>, files: &Files) -> Option<Admin> {
        let spec = key.value()?;
        let tls = spec.tls.value().and_then(|tls| self.admin_tls(tls, files));
        let token = self.admin_token(spec, files);
        let at = spec.listen.address()?;

        // What `tls` says is not known where other files are not read.
        let client_ca = match spec.tls.value() {
            Some(tls) => tls.client_ca.is_written(),
            None => spec.tls.is_written(),
        };

        let has_token = spec.token.is_written() || spec.token_file.is_written();
        let is_remote = !at.value.ip().is_loopback();

        if has_token && is_remote && !spec.tls.is_written() {
            self.token_in_cleartext(&at);
        }
        if !has_token && !client_ca && is_remote {
            let message =
                format!("the admin listener on `{}` requires no token or certificate", at.value);
            let help = format!(
                "write `token_file: FILE`, or `tls: {{ cert: FILE, key: FILE, client_ca: FILE }}`, \
                 or listen on this machine only: `127.0.0.1:{}`",
                at.value.port()
            );
            self.error(Problem::error(at.span, message).help(help));
        }

        let edit = spec.edit.is_true();
        let show_keys = spec.show_keys.is_true();
        Some(Admin { listen: at.value, token, tls, edit, show_keys })
    }

    /// Warns of a token that other machines can only send in cleartext.
    fn token_in_cleartext(&mut self, at: &At<SocketAddr>) {
        let what = "the admin token crosses the network in cleartext";
        let warning = Problem::warning(Lint::AdminWithoutTls, at.span, what);
        let help = format!(
            "write `tls: {{ cert: FILE, key: FILE }}`, or listen on this machine only: \
             `127.0.0.1:{}`",
            at.value.port()
        );
        self.warn(warning.help(help));
    }

    fn admin_token(&mut self, spec: &AdminSpec, files: &Files) -> Option<Secret> {
        if let (Some(token), Some(file)) = (spec.token.span, spec.token_file.span) {
            self.error(
                Problem::error(file, "the admin listener has two tokens")
                    .label("here")
                    .also(token, "and here")
                    .help("write one of `token` and `token_file`"),
            );
            return None;
        }

        if let Some(token) = spec.token.value() {
            return Some(token.0.clone());
        }

        let file = spec.token_file.path()?;
        let shown = quoted(&file.value.to_string_lossy());
        let text = match files.get(&file.value)? {
            Ok(bytes) => String::from_utf8_lossy(bytes),
            Err(why) => {
                let message = format!("cannot read the token file {shown}: {why}");
                let help = "write the name of a file that the gateway's user may read; relative \
                            names are meant from this file's folder";
                self.error(Problem::error(file.span, message).help(help));
                return None;
            }
        };

        match leaf::token(text.trim()) {
            Ok(token) => Some(token),
            Err(wrong) => {
                let message = format!("the token file {shown} cannot be used: {}", wrong.message);
                self.error(Problem::error(file.span, message).help(wrong.help));
                None
            }
        }
    }

    fn admin_tls(&mut self, spec: &AdminTlsSpec, files: &Files) -> Option<AdminTls> {
        let named = CertificateFiles { cert: spec.cert.path()?, key: spec.key.path()? };
        match AdminTls::load(&named, spec.client_ca.path(), files) {
            Ok(tls) => Some(tls),
            Err(problems) => {
                for problem in problems {
                    self.error(problem);
                }
                None
            }
        }
    }
}

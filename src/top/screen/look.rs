//! Colours, and what stands for them without colours. No meaning is in a colour alone.

use ratatui_core::{
    style::{Color, Modifier, Style},
    text::{Line, Span},
};

/// How things look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub has_colours: bool,
}

impl Look {
    fn coloured(self, colour: Color) -> Style {
        if self.has_colours { Style::new().fg(colour) } else { Style::new() }
    }

    pub(super) fn bad(self) -> Style {
        self.coloured(Color::Red).add_modifier(Modifier::BOLD)
    }

    pub(super) fn good(self) -> Style {
        self.coloured(Color::Green)
    }

    pub(super) fn odd(self) -> Style {
        self.coloured(Color::Yellow)
    }

    pub(super) fn chart(self) -> Style {
        self.coloured(Color::Cyan)
    }

    /// What matters less. Without colours it looks as all else: many terminals dim by a colour.
    pub(super) fn soft(self, text: String) -> Span<'static> {
        let style = Style::new();
        Span::styled(text, if self.has_colours { style.add_modifier(Modifier::DIM) } else { style })
    }

    pub(super) fn bad_line(self, text: String) -> Line<'static> {
        Line::styled(text, self.bad())
    }
}

/// Returns what is a key or a name.
pub(super) fn strong(text: &'static str) -> Span<'static> {
    Span::styled(text, Style::new().add_modifier(Modifier::BOLD))
}

//! Draws cells by the escape sequences of ECMA-48, which all terminals of today know.

use super::terminal;
use core::fmt::Write as _;
use ratatui_core::{
    backend::{Backend, ClearType, WindowSize},
    buffer::Cell,
    layout::{Position, Size},
    style::{Color, Modifier},
};
use std::io::{self, Write};

/// Writes what has changed, at once for each picture.
#[derive(Debug)]
pub(super) struct Screen<W> {
    out: W,
    text: String,
}

impl<W: Write> Screen<W> {
    pub(super) const fn new(out: W) -> Self {
        Self { out, text: String::new() }
    }

    fn push(&mut self, words: core::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        _ = self.text.write_fmt(words);
    }

    fn style(&mut self, cell: &Cell) {
        self.text.push_str("\x1b[0");
        for (modifier, code) in [
            (Modifier::BOLD, 1),
            (Modifier::DIM, 2),
            (Modifier::UNDERLINED, 4),
            (Modifier::REVERSED, 7),
        ] {
            if cell.modifier.contains(modifier) {
                self.push(format_args!(";{code}"));
            }
        }
        if let Some(code) = code(cell.fg) {
            self.push(format_args!(";{code}"));
        }
        self.text.push('m');
    }
}

/// The codes of the colours that `screen` uses.
const CODES: [(Color, u8); 4] =
    [(Color::Red, 31), (Color::Green, 32), (Color::Yellow, 33), (Color::Cyan, 36)];

fn code(colour: Color) -> Option<u8> {
    CODES.iter().find(|(known, _)| *known == colour).map(|(_, code)| *code)
}

impl<W: Write> Backend for Screen<W> {
    type Error = io::Error;

    fn draw<'a, I>(&mut self, content: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        let mut next = None;
        let mut last: Option<&Cell> = None;
        for (x, y, cell) in content {
            if next != Some((x, y)) {
                self.push(format_args!("\x1b[{};{}H", y + 1, x + 1));
            }
            if last.is_none_or(|last| last.fg != cell.fg || last.modifier != cell.modifier) {
                self.style(cell);
            }
            self.text.push_str(cell.symbol());
            // Of a wide character the cursor's way is not known to all terminals.
            next = cell.symbol().is_ascii().then_some((x + 1, y));
            last = Some(cell);
        }
        if last.is_some() {
            self.text.push_str("\x1b[0m");
        }
        Ok(())
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        self.text.push_str("\x1b[?25l");
        Ok(())
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        self.text.push_str("\x1b[?25h");
        Ok(())
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        Ok(Position::ORIGIN)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        let Position { x, y } = position.into();
        self.push(format_args!("\x1b[{};{}H", y + 1, x + 1));
        Ok(())
    }

    fn clear(&mut self) -> io::Result<()> {
        self.text.push_str("\x1b[0m\x1b[2J");
        Ok(())
    }

    fn clear_region(&mut self, _: ClearType) -> io::Result<()> {
        // Only inline screens clear less.
        self.clear()
    }

    fn size(&self) -> io::Result<Size> {
        let (width, height) = terminal::size();
        Ok(Size { width, height })
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        Ok(WindowSize { columns_rows: self.size()?, pixels: Size::ZERO })
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.text.is_empty() {
            return Ok(());
        }
        self.out.write_all(self.text.as_bytes())?;
        self.text.clear();
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui_core::style::Style;

    #[test]
    fn only_what_differs_is_written_and_once_for_a_picture() {
        let mut plain = Cell::new("a");
        let mut red = Cell::new("▂");
        red.set_style(Style::new().fg(Color::Red).add_modifier(Modifier::BOLD));
        let mut screen = Screen::new(Vec::new());
        screen
            .draw([(0, 0, &plain), (1, 0, &red), (2, 0, &red), (0, 4, &plain)].into_iter())
            .unwrap();
        assert!(screen.out.is_empty());
        screen.flush().unwrap();
        let text = String::from_utf8(screen.out).unwrap();
        assert_eq!(text, "\x1b[1;1H\x1b[0ma\x1b[0;1;31m▂\x1b[1;3H▂\x1b[5;1H\x1b[0ma\x1b[0m");
        plain.reset();
        assert_eq!(code(Color::Reset), None);
    }
}

//! Columns that line up, also with signs that take no width.

/// A table: the first column is aligned left, the others right.
pub(crate) struct Table(Vec<Vec<String>>);

impl Table {
    pub(crate) fn new<const N: usize>(heading: [String; N]) -> Table {
        Table(vec![heading.to_vec()])
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.0.push(cells.to_vec());
    }

    /// Lines indented by two, without trailing blanks.
    pub(crate) fn render(&self) -> String {
        let columns = self.0.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|column| self.0.iter().filter_map(|row| row.get(column)).map(|cell| width(cell)).max().unwrap_or(0))
            .collect();
        let mut text = String::new();
        // A terminal that orders right-to-left text would turn the columns around.
        let turns = self.0.iter().flatten().any(|cell| cell.chars().any(|c| ('\u{0600}'..='\u{06FF}').contains(&c)));
        for row in &self.0 {
            let mut line = String::from(if turns { "\u{200E} " } else { " " });
            for (column, cell) in row.iter().enumerate() {
                let blank = " ".repeat(widths[column] - width(cell));
                let cell = if turns { format!("\u{2068}{cell}\u{2069}") } else { cell.clone() };
                line += &if column == 0 { format!(" {cell}{blank}") } else { format!("  {blank}{cell}") };
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

/// Cells that a text takes: marks that join or isolate take none.
fn width(text: &str) -> usize {
    text.chars()
        .filter(|c| !matches!(c, '\u{200B}'..='\u{200F}' | '\u{2066}'..='\u{2069}' | '\u{064B}'..='\u{0655}'))
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_isolates_take_no_width() {
        let mut table = Table::new(["name".into(), "ms".into()]);
        table.row(["load".into(), "\u{2068}12.3\u{2069}".into()]);
        table.row(["preprocess".into(), "5.1".into()]);
        assert_eq!(table.render(), "  name          ms\n  load        \u{2068}12.3\u{2069}\n  preprocess   5.1\n");
    }
    #[test]
    fn columns_keep_their_place_in_right_to_left_text() {
        let mut table = Table::new(["نام".into(), "ms".into()]);
        table.row(["load".into(), "12.3".into()]);
        let (mark, open, close) = ('\u{200E}', '\u{2068}', '\u{2069}');
        let wanted =
            format!("{mark}  {open}نام{close}     {open}ms{close}\n{mark}  {open}load{close}  {open}12.3{close}\n");
        assert_eq!(table.render(), wanted);
    }
}

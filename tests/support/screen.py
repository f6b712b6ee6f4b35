"""What a user sees of the bytes that programs write: on a terminal, and in a file or behind a pipe."""

import pyte

# A terminal keeps what scrolls out of it; the screen here is tall enough that nothing does.
_ROWS = 10_000


class _Rows(pyte.Screen):
    """Records which rows were full, so that their text continues on the next row."""

    def __init__(self, columns):
        self.continued = set()
        self._drawing = False
        super().__init__(columns, _ROWS)

    def draw(self, data):
        self._drawing = True
        super().draw(data)
        self._drawing = False

    def index(self):
        if self._drawing:
            self.continued.add(self.cursor.y)
        super().index()


class Screen:
    """A terminal of `columns`."""

    def __init__(self, columns):
        self._rows = _Rows(columns)
        self._stream = pyte.ByteStream(self._rows)
        self._first = 0

    def feed(self, data):
        self._stream.feed(data)

    @property
    def title(self):
        return self._rows.title

    def start_block(self):
        """What is on the screen belongs to earlier blocks; the next one starts on a row of its own."""
        if self._rows.cursor.x > 0:
            self._stream.feed(b"\r\n")
        self._first = self._rows.cursor.y

    def text(self):
        """The lines of the block up to the cursor; those that the terminal wrapped are one line."""
        lines, line = [], ""
        for y in range(self._first, self._rows.cursor.y + 1):
            line += "".join(self._rows.buffer[y][x].data for x in range(self._rows.columns))
            if y not in self._rows.continued:
                lines.append(line.rstrip())
                line = ""
        return "\n".join(lines)


class Paper:
    """A file or pipe: it keeps every byte."""

    title = ""

    def __init__(self):
        self._data = b""

    def feed(self, data):
        self._data += data

    def start_block(self):
        self._data = b""

    def text(self):
        return self._data.decode(errors="replace")

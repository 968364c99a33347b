"""`make reference`: writes the pages of docs/reference, the pictures of concepts, the words of the console's editor,
and the figures beside peers in other pages, from the code and docs/performance.md."""

from tools.concepts import concept_pictures
from tools.reference.pages import pages

if __name__ == "__main__":
    for path, text in {**pages(), **concept_pictures()}.items():
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            print(path)

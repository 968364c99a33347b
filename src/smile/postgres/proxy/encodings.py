"""The Python codecs of PostgreSQL's client encodings."""

from typing import Final

_LATIN_PARTS: Final = (1, 2, 3, 4, 9, 10, 13, 14, 15, 16)
"""The parts of ISO 8859 that PostgreSQL calls LATIN1 to LATIN10."""
_CODECS: Final = {
    "UTF8": "utf-8",
    "SQL_ASCII": "latin-1",  # bytes without a meaning: each is a character
    **{f"LATIN{number}": f"iso8859-{part}" for number, part in enumerate(_LATIN_PARTS, 1)},
    **{f"ISO_8859_{part}": f"iso8859-{part}" for part in (5, 6, 7, 8)},
    **{f"WIN{page}": f"cp{page}" for page in (866, 874, *range(1250, 1259))},
    "KOI8R": "koi8-r",
    "KOI8U": "koi8-u",
    "EUC_JP": "euc_jp",
    "EUC_KR": "euc_kr",
    "EUC_CN": "gb2312",
    "SJIS": "shift_jis",
    "BIG5": "big5",
    "GBK": "gbk",
    "UHC": "cp949",
    "GB18030": "gb18030",
    "JOHAB": "johab",
}


def decode_text(text: bytes, encoding: str) -> str | None:
    """None if the encoding has no codec here, or if the text is not in it: then it is not translated."""
    codec = _CODECS.get(encoding)
    try:
        return None if codec is None else text.decode(codec)
    except UnicodeDecodeError:
        return None


def encode_text(text: str, encoding: str) -> bytes:
    """For text that was decoded from the same encoding, with additions in ASCII."""
    return text.encode(_CODECS.get(encoding, "ascii"), "replace")

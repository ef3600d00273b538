"""Texts that hurt tokenizers."""

from __future__ import annotations

NASTY: list[str] = [
    "",
    " ",
    "  ",
    "\n",
    "\n\n",
    "\r\n\r\n a\r\nb\rc",
    " \n ",
    "\t\t x",
    "   \n\n   \n\t \n x",
    "  leading and trailing  ",
    "Hello, World!  How's it going?\n\n\tI'm fine, THEY'RE not. It'S 'Tis",
    "don't can't we'll I'd you've he's 'S 'LL it''s ''' \"\"\"",
    "1 12 123 1234 12345 123456 1234567890 3.14159 1,000,000",
    "\u00bd \u00b2 x\u00b3 \u0663\u0664 \u096a\u096b\u096c \u2460\u2461 \u2163",
    "v1.2.3-rc4 12:34:56 2024-01-02T03:04",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f44d\U0001f3fd "
    "\U0001f3f3\ufe0f\u200d\U0001f308 \U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7",
    "\u2764\ufe0f\u200d\U0001f525 \u263a\ufe0f",
    "e\u0301 n\u0303 Z\u0351\u0334a\u0341lgo a\u0300\u0301\u0302 b\u0327",
    "\u0939\u093f\u0928\u094d\u0926\u0940 \u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22 "
    "\u0ba4\u0bae\u0bbf\u0bb4\u0bcd \u09ac\u09be\u0982\u09b2\u09be",
    "\u6211\u4eec\u90fd\u662f\u4e2d\u56fd\u4eba\u6ca1\u6709\u7a7a\u683c\u7684\u957f\u53e5\u5b50,"
    "\u8fd8\u6709\u6807\u70b9\u3002\u7b2c123\u53f7",
    "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8\u3001\u30ab\u30bf\u30ab\u30ca\uff01",
    "\ud55c\uad6d\uc5b4 \ud14d\uc2a4\ud2b8\uc785\ub2c8\ub2e4 \u1100\u1101 "
    "\u3131\u3134 \u3105\u3106",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645\u060c "
    "\u05e9\u05dc\u05d5\u05dd",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! "
    "\u041f\u0420\u0418\u0412\u0415\u0422",
    "\u0395\u03bb\u03bb\u03b7\u03bd\u03b9\u03ba\u03ac \u039a\u0395\u038a\u039c\u0395\u039d\u039f",
    "\u00c9cole\u00c9t\u00e9 \u00e9\u00c9 \u00c0\u00c9 stra\u00dfe \u01c5 na\u00efve",
    "CamelCaseWords HTTPServer snake_case kebab-case XMLHttpRequest",
    "def f(x):\n    return x**2  # comment\n\n\nclass A:\n\tpass\n",
    "https://example.com/a?b=c&d=e#f user@mail.org C:\\path\\file",
    "!!!???...---===***///\\\\\\ (a|b) [c] {d} <e>",
    "$100 \u20ac50 \u00a33 \u20bf + \u2212 \u00d7 \u00f7 = \u2260 \u2264",
    "\x00\x01\x02\x1b[31m\x7f",
    "\u200b\u200d\ufeffx \u00adsoft",
    "<|im_start|>user\nhi<|im_end|> <|im_start < |im_end| > <s> [INST]",
    "<mark><mark ><<mark>> <|control|><|control|>",
    "<|control|",
    "a" * 70,
    "ab" * 40,
    " " * 50 + "x",
    "\n" * 40,
    "\t" * 20 + "\n" + " " * 20,
    "=-" * 30,
    "0" * 40,
    "x y z w " * 10,
    "haha hahaha hahahaha ==== ===== ---- -----",
    "the the the of of in in and a to",
    "\U0001d4b3\U0001d4ce \U0001d400\U0001d401 \u211d \u2102 \ufdfa \ufb01 \u212b \u2126",
    "\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c \uff41\uff42\uff43 \uff11\uff12\uff1f",
    "IMGIMGABCZ <sentinel:12>",
    "\u0e01\u0e33\u0e40\u0e17\u0e28 \u17e1\u17e2 \u1000\u1001",
]
BLANKS: list[str] = [
    "a\u00a0b \u00a0 c",
    "\u1680\u2003\u3000x\u3000 y",
    "x\u2028y\u2029z",
    "\x85 \x85x",
]

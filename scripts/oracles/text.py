#!/usr/bin/env python3
"""Makes crates/text/tests/data/*.tsv with other implementations: numbers by num2words, Persian characters by hazm.

    python3 -m venv venv && venv/bin/pip install num2words hazm && venv/bin/python scripts/oracles/text.py

The sentences are our own. hazm runs with only its character-level steps, which is what `persian::characters` does.
"""
import os
import random

from hazm import Normalizer
from num2words import num2words

OUT = os.path.join(os.path.dirname(__file__), "../../crates/text/tests/data")
rng = random.Random(7)
values = sorted(set(list(range(0, 131)) + [200, 300, 999, 1000, 1001, 1100, 1999, 2000, 10**6, 10**6 + 1, 10**9, 10**12]
                    + [rng.randrange(10 ** d, 10 ** (d + 1)) for d in range(2, 15) for _ in range(12)]))
with open(os.path.join(OUT, "numbers.tsv"), "w", encoding="utf-8") as f:
    f.write("# number, English cardinal, English ordinal, Persian cardinal; by num2words (see scripts/oracles/text.py)\n")
    for v in values:
        en = num2words(v, lang="en").replace(" and ", " ").replace(",", "")
        od = num2words(v, lang="en", to="ordinal").replace(" and ", " ").replace(",", "")
        fa = num2words(v, lang="fa")
        f.write(f"{v}\t{en}\t{od}\t{fa}\n")
with open(os.path.join(OUT, "years.tsv"), "w", encoding="utf-8") as f:
    f.write("# year, as it is said; by num2words\n")
    for y in [1066, 1100, 1492, 1500, 1605, 1700, 1799, 1800, 1805, 1812, 1900, 1901, 1905, 1910, 1945, 1984, 1999, 2000,
              2001, 2006, 2009, 2010, 2011, 2020, 2026, 2099]:
        said = num2words(y, lang="en", to="year").replace("oh-", "oh ").replace(" and ", " ")
        f.write(f"{y}\t{said}\n")
SENTENCES = """كتاب علي روي ميز است
٠١٢٣٤٥٦٧٨٩ تا 0123456789
سَلامٌ عَلَيْكُم دوستانِ عزيز
مي‌روم و نمي‌آيم
خانه‌هاي بزرگ، باغ‌هاي سبز
يك، دو، سه؛ چهار؟ پنج!
دانشگاه صنعتي شريف در سال ۱۳۴۴ بنا شد
قيمت ٢٥٠٠ تومان است
گفت: «فردا مي‌آيم»
بيش از 30 درصد
كوه‌هاي بلند و رودهاي پرآب
آقاي احمدي به خانه رفت
مدرسه‌اي كه ديدم
پنج‌شنبه ساعت ۸ صبح
ايران كشوري است در آسيا
شُكوفه‌های بِهاری
نامهٔ دوستم رسید
بچّه‌ها بازی می‌کنند
اَلبَتّه که می‌آیم
پرنده‌ای بر شاخه نشست""".split("\n")
hazm = Normalizer(correct_spacing=False, remove_diacritics=True, remove_specials_chars=False,
                  decrease_repeated_chars=False, persian_style=False, persian_numbers=True,
                  unicodes_replacement=False, seperate_mi=False)
with open(os.path.join(OUT, "hazm.tsv"), "w", encoding="utf-8") as f:
    f.write("# written, characters in their Persian form; by hazm\n")
    for s in SENTENCES:
        f.write(f"{s}\t{hazm.normalize(s)}\n")

// The template engine: language details that the reference snippets leave out, hostile templates, budgets.
#include <corbel/chat.hpp>

#include <catch2/catch.hpp>
#include <string>
#include <string_view>

#include "support/small_stack.hpp"
#include "support/support.hpp"

namespace {

using corbel::ChatTemplate;
using corbel::Errc;
using corbel::TemplateLimits;
using corbel::json::Value;
using corbel_test::repeat;

struct Outcome {
  Errc code = Errc::kOk;
  std::string text;  // output, or the error's message
};

Outcome run(std::string_view source, std::string_view variables = "{}", const TemplateLimits& limits = {}) {
  const auto parsed = corbel::json::parse(variables);
  if (!parsed.ok()) return {Errc::kInternal, "bad variables in the test"};
  const auto chat = ChatTemplate::compile(source, "", "", limits);
  if (!chat.ok()) return {chat.status().code(), std::string(chat.status().message())};
  const auto out = chat->render(*parsed);
  if (!out.ok()) return {out.status().code(), std::string(out.status().message())};
  return {Errc::kOk, corbel::join(*out)};
}

std::string output(std::string_view source, std::string_view variables = "{}") {
  const Outcome outcome = run(source, variables);
  return outcome.code == Errc::kOk ? outcome.text : "ERROR " + outcome.text;
}

// Errors at compile time and at render time both name the place.
void check_error(std::string_view source, Errc code, std::string_view part = "template line ") {
  const Outcome outcome = run(source);
  CAPTURE(std::string(source.substr(0, 120)), outcome.text.substr(0, 200));
  CHECK(corbel::errc_name(outcome.code) == std::string(corbel::errc_name(code)));
  CHECK(outcome.text.find(part) != std::string::npos);
  CHECK(outcome.text.size() <= 512);
}

}  // namespace

TEST_CASE("expressions bind as in Jinja", "[jinja]") {
  CHECK(output("{{ 1 + 2 * 3 ** 2 - 4 }}") == "15");
  CHECK(output("{{ 2 ** 3 ** 2 }}") == "64");
  CHECK(output("{{ not 1 == 2 }}{{ not false and false }}") == "TrueFalse");
  CHECK(output("{{ 1 < 2 < 3 }}{{ 1 < 3 < 2 }}{{ 3 > 2 > 1 > 0 }}") == "TrueFalseTrue");
  CHECK(output("{{ 'a' ~ 1 + 2 ~ 'b' }}") == "a12b");
  CHECK(output("{{ 'a' ~ 1 * 2 ~ none }}") == "a2None");
  CHECK(output("{{ 'x' if false }}|{{ 'a' if 0 else 'b' if 0 else 'c' }}") == "|c");
  CHECK(output("{{ [1, 2] | length + 1 }}") == "3");
  CHECK(output("{{ x[1:][0] }}{{ x[y[0:1][0]] }}", R"({"x": [7, 8], "y": [1]})") == "88");
  CHECK(output("{{ 0x1F }} {{ 0b101 }} {{ 0o17 }} {{ 1_000 }} {{ 1e3 }} {{ 1.5e-7 }}") ==
        "31 5 15 1000 1000.0 1.5e-07");
  CHECK(output("{{ f(*[1, 2], **{'c': 3}) }}{% macro f(a, b, c) %}{% endmacro %}").substr(0, 5) == "ERROR");
  CHECK(output("{% macro f(a, b, c) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(*[1, 2], **{'c': 3}) }}") == "123");
  CHECK(output("{{ 1, 2 }}{{ () }}{{ (3,) }}") == "(1, 2)()(3,)");
}

TEST_CASE("numbers print and divide as in Python", "[jinja]") {
  CHECK(output("{{ 1e16 }} {{ 1e15 }} {{ 0.0001 }} {{ 0.00001 }} {{ 1e22 }} {{ -0.0 }}") ==
        "1e+16 1000000000000000.0 0.0001 1e-05 1e+22 -0.0");
  CHECK(output("{{ -7 // -2 }} {{ 7 // -2 }} {{ 7 % -3 }} {{ -7 % -3 }} {{ -7.5 % -2 }} {{ 7 % -2.5 }}") ==
        "3 -4 -2 -1 -1.5 -0.5");
  CHECK(output("{{ 9223372036854775807 }} {{ -9223372036854775807 - 1 }}") ==
        "9223372036854775807 -9223372036854775808");
  CHECK(output("{{ x }} {{ x == y }}", R"({"x": 9007199254740993, "y": 9007199254740992.0})") ==
        "9007199254740993 False");
  check_error("{{ 9223372036854775807 + 1 }}", Errc::kTemplateError, "64 bits");
  check_error("{{ (-9223372036854775807 - 1) // -1 }}", Errc::kTemplateError, "64 bits");
  check_error("{{ 9223372036854775808 }}", Errc::kTemplateError, "column 4");
  CHECK(output("{{ (-9223372036854775807 - 1) % -1 }}") == "0");
}

TEST_CASE("markup escapes what it is joined with", "[jinja]") {
  CHECK(output("{{ '<'|safe + x + '<b>'|e + x|tojson }}", R"({"x": "a<\"'&>"})") ==
        "<a&lt;&#34;&#39;&amp;&gt;&lt;b&gt;&#34;a&lt;\\&#34;&#39;&amp;&gt;&#34;");
  CHECK(output("{{ '<' + '<'|safe }}{{ '<' ~ ('<'|safe) }}{{ ('<'|safe) * 2 }}{{ ('<%s>'|safe) % '<' }}") ==
        "&lt;<<<<<<&lt;>");
  CHECK(output("{{ ('<{}>{}'|safe).format('<', '<'|safe) }}{{ ('&'|safe).join(['<', '>'|safe]) }}") == "<&lt;><&lt;&>");
  CHECK(output("{{ ('<a'|safe).replace('a', '<') }}{{ ('<a'|safe)|replace('a', '<') }}{{ ('<'|e|e) }}") ==
        "<&lt;<<&lt;");
  CHECK(output("{{ ('<'|e)|forceescape }}{{ 1|safe + 'x' }}{{ [('a'|safe)] }}{{ ('<'|safe) == '<' }}") ==
        "&amp;lt;1x[Markup('a')]True");
  CHECK(output("{% for x in ['a'|safe, 'a', 'a'|e, ('a b'|safe).split()[0], ('a'|safe)[0], ('a'|safe) ~ '',"
               " ('a'|safe)|upper, ('a'|safe)|trim|string] %}{{ 1 if x is escaped else 0 }}{% endfor %}") ==
        "10111011");
  CHECK(output("{{ '<p>a  <!-- > --> b</p> &amp;&lt;'|striptags }}|{{ {'a': '<', 'b': none, 'c': 1}|xmlattr }}") ==
        "a b &<| a=\"&lt;\" c=\"1\"");
}

TEST_CASE("filters and methods of strings answer as in Python", "[jinja]") {
  CHECK(output("{{ 'a b c '.split(none, 1) }}{{ ' a b '.rsplit(none, 1) }}{{ 'a b '.split(none, 2) }}") ==
        "['a', 'b c '][' a', 'b']['a', 'b']");
  CHECK(output("{{ 'abcabc'.startswith('b', 1) }}{{ 'abcabc'.count('b', 2) }}{{ 'abcabc'.find('a', 1, 3) }}"
               "{{ 'abc'.endswith('b', 0, -1) }}") == "True1-1True");
  CHECK(output("{{ '-42'.zfill(6) }}{{ 'a\tb'.expandtabs(4) }}{{ 'x_1'.isidentifier() }}{{ 'Ab Cd'.istitle() }}") ==
        "-00042a   bTrueTrue");
  CHECK(output("{{ '{:>5}|{:<5}|{:^5}|{:*^7}|{:05d}|{:+.2f}'.format('a', 'b', 'c', 'd', 42, 1.5) }}") ==
        "    a|b    |  c  |***d***|00042|+1.50");
  CHECK(output("{{ '{0.x}{0[y]}{1!r:>5}{:,}{n:#x}{:.1%}'.replace('{:,}', '{2:,}').replace('{:.1', '{3:.1')"
               ".format({'x': 1, 'y': 2}, 'a', 1234567, 0.256, n=255) }}") == "12  'a'1,234,5670xff25.6%");
  CHECK(output("{{ '{:{w}}|{{}}|{:.3}|{:.3}'.format('a', 'abcdef', 100.0, w=3) }}{{ '{a}'.format_map({'a': 1}) }}") ==
        "a  |{}|abc|1e+021");
  CHECK(output("{{ '%c%c' % (65, 'b') }}{{ '%s' % missing }}{{ '1_000'|int + ' 2_0 '|int }}{{ -7 % 0.5 }}") ==
        "Ab10200.0");
  CHECK(output("{{ range(7)|slice(3)|list }}{{ range(4)|slice(3, 'x')|list }}") ==
        "[[0, 1, 2], [3, 4], [5, 6]][[0, 1], [2, 'x'], [3, 'x']]");
  CHECK(output("{{ x|sort(attribute='a,b')|map(attribute='b')|list }}"
               "{% for g in x|groupby('a') %}{{ g.grouper }}{{ g.list|length }}{% endfor %}",
               R"({"x": [{"a": 2, "b": 1}, {"a": 1, "b": 3}, {"a": 1, "b": 2}]})") == "[2, 3, 1]1221");
  CHECK(output("{{ {'a b': 'c/d', 'e': 1}|urlencode }}{{ [('x', 'y z')]|urlencode }}{{ 'a/b c'|urlencode }}") ==
        "a+b=c%2Fd&e=1x=y+za/b%20c");
  CHECK(output("{{ 1|filesizeformat }},{{ 1500|filesizeformat }},{{ 1536|filesizeformat(true) }}") ==
        "1 Byte,1.5 kB,1.5 KiB");
}

TEST_CASE("names are of letters", "[jinja]") {
  CHECK(output("{% set n\u00E4_\u65E5\u0301 = 1 %}{{ n\u00E4_\u65E5\u0301 }}") == "1");
  check_error("{{ \u2018text\u2019 }}", Errc::kTemplateError, "column 4: unexpected character");
}

TEST_CASE("scopes", "[jinja]") {
  CHECK(output("{% macro m() %}{{ x }}{% endmacro %}{% for x in [1] %}{{ m() }}{% endfor %}") == "");
  CHECK(output("{% for x in [1] %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% endfor %}") == "1");
  CHECK(output("{% set x = 1 %}{% macro m() %}{% set x = 2 %}{{ x }}{% endmacro %}{{ m() }}{{ x }}") == "21");
  CHECK(output("{% set x %}a{{ 1 }}{% set y = 2 %}{% endset %}{{ x }}{{ y }}") == "a1");
  CHECK(output("{% set x | upper | replace('A', 'b') %}aa{% endset %}{{ x }}") == "bb");
  CHECK(output("{% for x in [1, 2, 3] if x != 2 %}{{ x }}{{ loop.length }}{{ loop.last }} {% else %}-{% endfor %}") ==
        "12False 32True ");
  CHECK(output("{% for x in [2] if x != 2 %}{{ x }}{% else %}-{% endfor %}") == "-");
  CHECK(output("{% for x in [1, 2, 3] %}{% with y = x %}{% if y == 2 %}{% continue %}{% endif %}{% endwith %}{{ x }}"
               "{% endfor %}") == "13");
  CHECK(output("{% for x in [1, 2] %}{% for y in [1, 2] %}{% if y == 2 %}{% break %}{% endif %}{{ x }}{{ y }} "
               "{% endfor %}{% endfor %}") == "11 21 ");
  CHECK(output("{% for x in t recursive %}{{ x.n }}{{ loop(x.c) if x.c }}{% endfor %}",
               R"({"t": [{"n": 1, "c": [{"n": 2, "c": [{"n": 3}]}, {"n": 4}]}, {"n": 5}]})") == "12345");
  CHECK(output("{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, 2) }}") == "1112");
}

TEST_CASE("CH-03: string methods on filtered values", "[jinja]") {
  const std::string values = R"({"x": "<think>\nhm\n</think>\n\nHi\n", "list": [1, 2, 3]})";
  CHECK(output("{{ (x.split('</think>')|last).lstrip('\\n') }}", values) == "Hi\n");
  CHECK(output("{{ x.split('</think>')[-1] }}", values) == "\n\nHi\n");
  CHECK(output("{{ 'a\\n\\n'.rstrip('\\n') }}{{ list[:-1] }}{{ 'abc'[:-1] }}", values) == "a[1, 2]ab");
  CHECK(output("{{ (x|trim).split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') }}", values) == "hm");
  CHECK(output("{{ ('a' ~ 'B')|upper|lower|replace('a', 'c')|trim }}{{ ('aB'|upper).lower().strip('a') }}") == "cbb");
  CHECK(output("{{ strftime_now is defined }}{{ strftime_now is callable }}") == "TrueTrue");
  // What is in no string is an error that names the place, and no empty text.
  check_error("a\n{{ ('x'|upper).nope() }}", Errc::kTemplateError, "template line 2, column ");
  check_error("{{ nope('x') }}", Errc::kTemplateError);
}

TEST_CASE("CH-05: nothing is dropped silently", "[jinja]") {
  CHECK(output("{% raw %}{{ x }}{% y %}{% endraw %}") == "{{ x }}{% y %}");
  CHECK(output("{% set x %}a{{ 1 }}{% endset %}{{ x }}{% filter upper %}b{{ x }}{% endfilter %}") == "a1BA1");
  check_error("{% include 'x' %}", Errc::kUnsupported);
  check_error("{{ 1 is nope }}", Errc::kTemplateError, "nope");
  check_error("{{ raise_exception('no') }}", Errc::kTemplateError, "raise_exception: no");
  check_error("{% nope %}", Errc::kTemplateError, "nope");
  check_error("{% cache 'x' %}{% endcache %}", Errc::kTemplateError, "cache");
  check_error("{{ 1|nope }}", Errc::kTemplateError, "nope");
}

TEST_CASE("unknown filters and tests fail where they are reached", "[jinja]") {
  check_error("{{ 1|nope }}", Errc::kTemplateError, "no filter named 'nope'");
  CHECK(output("{% if false %}{{ 1|nope }}{{ 1 is nope }}{% endif %}ok") == "ok");
  check_error("{% if true %}{{ 1 is nope }}{% endif %}", Errc::kTemplateError, "no test named 'nope'");
}

TEST_CASE("places count lines and characters", "[jinja]") {
  check_error("ab\n{% if true %}\n  \xC3\xA9{{ 1 / 0 }}{% endif %}", Errc::kTemplateError,
              "template line 3, column 9: ");
  check_error("a\r\nb\r\n{{ ) }}", Errc::kTemplateError, "template line 3, column 4: ");
}

TEST_CASE("J01: macros and loops that call themselves", "[jinja][hostile]") {
  check_error("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", Errc::kTemplateBudget);
  check_error("{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
              Errc::kTemplateBudget);
  check_error("{% for x in [[1]] recursive %}{{ loop([x]) }}{% endfor %}", Errc::kTemplateBudget);
  check_error(
      "{% macro m() %}{{ caller() }}{% endmacro %}{% macro r() %}{% call m() %}{{ r() }}{% endcall %}{% endmacro %}"
      "{{ r() }}",
      Errc::kTemplateBudget);
}

TEST_CASE("J02: nesting", "[jinja][hostile]") {
  for (const std::size_t depth : {201u, 10'000u}) {
    CAPTURE(depth);
    check_error("{{ " + repeat("(", depth) + "1" + repeat(")", depth) + " }}", Errc::kDepthExceeded);
    check_error("{{ " + repeat("[", depth) + repeat("]", depth) + " }}", Errc::kDepthExceeded);
    check_error("{{ " + repeat("{1:", depth) + "1" + repeat("}", depth) + " }}", Errc::kDepthExceeded);
    check_error("{{ " + repeat("not ", depth) + "1 }}", Errc::kDepthExceeded);
    check_error("{{ " + repeat("- ", depth) + "1 }}", Errc::kDepthExceeded);
    check_error("{{ x" + repeat("|trim", depth) + " }}", Errc::kDepthExceeded);
    check_error("{{ x" + repeat(".y", depth) + " }}", Errc::kDepthExceeded);
    check_error("{{ 1" + repeat(" if 1", depth) + " }}", Errc::kDepthExceeded);
    check_error("{{ 1" + repeat(" if 1 else 1", depth) + " }}", Errc::kDepthExceeded);
    check_error("{% for " + repeat("(", depth) + "x" + repeat(",)", depth) + " in y %}{% endfor %}",
                Errc::kDepthExceeded);
    check_error(repeat("{% if true %}", depth) + repeat("{% endif %}", depth), Errc::kDepthExceeded);
    check_error(repeat("{% for x in y %}", depth) + repeat("{% endfor %}", depth), Errc::kDepthExceeded);
  }
  CHECK(output(repeat("{% if true %}", 200) + "x" + repeat("{% endif %}", 200)) == "x");
  CHECK(output("{{ " + repeat("not ", 198) + "1 }}") == "True");
  CHECK(output("{{ " + repeat("(", 199) + "1" + repeat(")", 199) + " }}") == "1");
}

TEST_CASE("J02: values that nest through a namespace", "[jinja][hostile]") {
  check_error("{% set n = namespace(v=[]) %}{% for i in range(1000) %}{% set n.v = [n.v] %}{% endfor %}",
              Errc::kDepthExceeded);
  check_error("{% set n = namespace(v={}) %}{% for i in range(1000) %}{% set n.v = {'a': n.v} %}{% endfor %}",
              Errc::kDepthExceeded);
}

TEST_CASE("J03, J04: loops and ranges without end", "[jinja][hostile]") {
  check_error(
      "{% for a in range(1000) %}{% for b in range(1000) %}{% for c in range(1000) %}{% for d in range(1000) %}x"
      "{% endfor %}{% endfor %}{% endfor %}{% endfor %}",
      Errc::kTemplateBudget);
  check_error("{% for i in range(1000000000) %}{% endfor %}", Errc::kTemplateBudget);
  check_error("{{ range(-9223372036854775807, 9223372036854775807)|list }}", Errc::kTemplateBudget);
  check_error("{{ range(1, 2, 0) }}", Errc::kTemplateError);
  CHECK(output("{{ range(9223372036854775800, 9223372036854775807, 9223372036854775807)|list|length }}") == "1");
}

TEST_CASE("J05: strings that grow", "[jinja][hostile]") {
  check_error("{{ 'x' * 10000000000 }}", Errc::kTemplateBudget);
  check_error("{{ [1] * 10000000000 }}", Errc::kTemplateBudget);
  check_error("{{ '' * 9223372036854775807 }}", Errc::kTemplateBudget);
  check_error("{{ 'x\nx'|indent(10000000000) }}", Errc::kTemplateBudget);
  check_error("{{ 'x'|center(10000000000) }}", Errc::kTemplateBudget);
  check_error("{{ 'x'.ljust(9223372036854775807) }}", Errc::kTemplateBudget);
  check_error("{{ [1]|tojson(indent=10000000000) }}", Errc::kTemplateBudget);
  check_error("{{ '%100000000d' % 1 }}", Errc::kTemplateBudget);
  check_error("{% set n = namespace(s='x') %}{% for i in range(64) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
              Errc::kTemplateBudget);
  check_error(
      "{% set n = namespace(s='xxxxxxxx') %}{% for i in range(64) %}{% set n.s = n.s|replace('x', n.s) %}{% endfor %}",
      Errc::kTemplateBudget);
  check_error("{% set n = namespace(s=[1]) %}{% for i in range(64) %}{% set n.s = n.s + n.s %}{% endfor %}",
              Errc::kTemplateBudget);
  check_error("{% set n = namespace(s=[1]) %}{% for i in range(99) %}{% set n.s = [n.s, n.s] %}{% endfor %}{{ n.s }}",
              Errc::kTemplateBudget);
  check_error(
      "{% set n = namespace(s=[1]) %}{% for i in range(99) %}{% set n.s = [n.s, n.s] %}{% endfor %}"
      "{{ n.s == n.s[0] }}{{ [n.s] == [n.s] }}{{ n.s|tojson }}",
      Errc::kTemplateBudget);
}

TEST_CASE("J06: arithmetic", "[jinja][hostile]") {
  for (const char* source : {"{{ 1/0 }}", "{{ 1//0 }}", "{{ 1%0 }}", "{{ 1.0/0 }}", "{{ 1.5//0 }}", "{{ 1.5%0.0 }}",
                             "{{ 2**100000 }}", "{{ 0**-1 }}", "{{ (0-8)**0.5 }}", "{{ 2**0.3 }}"}) {
    check_error(source, Errc::kTemplateError);
  }
}

TEST_CASE("J07: values that contain themselves", "[jinja][hostile]") {
  check_error("{% set n = namespace() %}{% set n.a = n %}{{ n }}", Errc::kTemplateError, "contains itself");
  check_error("{% set n = namespace() %}{% set n.a = [n] %}{{ n.a }}", Errc::kTemplateError, "contains itself");
  check_error("{% set n = namespace() %}{% set n.a = [n] %}{{ n.a|tojson }}", Errc::kTemplateError,
              "not JSON serializable");
  CHECK(output("{% set n = namespace() %}{% set n.a = [n] %}{{ n.a == [n] }}{{ n == n }}") == "TrueTrue");
  CHECK(output("{% set n = namespace() %}{% for x in [1] %}{% set n.l = loop %}{{ loop.changed(loop, n) }}{% endfor %}"
               "{{ n.l.changed(n.l) }}{{ n.l.changed(n.l) }}") == "TrueTrueTrue");
}

TEST_CASE("J08: attribute walks", "[jinja][hostile]") {
  for (const char* name : {"__class__", "_x", "mro", "__init__", "__globals__", "append", "update"}) {
    for (const char* object : {"''", "[]", "{}", "1", "range", "joiner()", "m"}) {
      const std::string walk = std::string("(") + object + ")." + name;
      const std::string before = "{% macro m() %}{% endmacro %}";
      CAPTURE(walk);
      CHECK(output(before + "[{{ " + walk + " }}]{{ " + walk + " is defined }}") == "[]False");
      check_error(before + "{{ " + walk + ".x }}", Errc::kTemplateError, "has no attribute");
      check_error(before + "{{ " + walk + "() }}", Errc::kTemplateError, "has no attribute");
    }
  }
  check_error("{{ ''['__class__']['__mro__'] }}", Errc::kTemplateError);
  check_error("{{ ''|attr('__class__')|attr('x') }}", Errc::kTemplateError);
  check_error("{% set n = namespace() %}{% set n._x = 1 %}", Errc::kTemplateError);
  check_error("{{ namespace({'_x': 1}) }}", Errc::kTemplateError);
}

TEST_CASE("J09: other templates", "[jinja][hostile]") {
  for (const char* source :
       {"{% include 'x' %}", "{% import 'x' as y %}", "{% from 'x' import y %}", "{% extends 'x' %}",
        "{% block x %}{% endblock %}", "{% if false %}{% include 'x' %}{% endif %}"}) {
    check_error(source, Errc::kUnsupported);
  }
}

TEST_CASE("J10: slices and indices", "[jinja][hostile]") {
  check_error("{{ 'abc'[::0] }}", Errc::kTemplateError);
  check_error("{{ [1][9223372036854775808] }}", Errc::kTemplateError);
  check_error("{{ [1]['a':] }}", Errc::kTemplateError);
  check_error("{{ 5[1:] }}", Errc::kTemplateError);
  CHECK(
      output("{{ 'abc'[9223372036854775807:] }}|{{ 'abc'[-9223372036854775807:2] }}|{{ 'abc'[::9223372036854775807] }}|"
             "{{ 'abc'[::-9223372036854775807] }}|{{ 'abc'[2:0] }}|{{ 'abc'[-1:-3:-1] }}") == "|ab|a|c||cb");
  CHECK(output("{{ [1, 2][9223372036854775807] }}{{ [1, 2][-9223372036854775807] }}{{ 'a'[5] }}") == "");
}

TEST_CASE("J11: sorting and attributes on mixed types", "[jinja][hostile]") {
  check_error("{{ [1, 'a', none]|sort }}", Errc::kTemplateError);
  check_error("{{ [{}, {'a': 1}]|sort }}", Errc::kTemplateError);
  check_error("{{ [[], []]|unique|list }}", Errc::kTemplateError);
  check_error("{{ [1, 'a']|max }}", Errc::kTemplateError);
  check_error("{{ 5|map(attribute='x')|list }}", Errc::kTemplateError);
  check_error("{{ [1]|map(attribute='x.y')|list }}", Errc::kTemplateError);
  check_error("{{ 5|dictsort }}", Errc::kTemplateError);
  check_error("{{ [1]|map('nope') }}", Errc::kTemplateError);
  check_error("{{ [1]|select('nope') }}", Errc::kTemplateError);
  CHECK(output("{{ [1, 'a', 1.0, true]|unique|list }}") == "[1, 'a']");
  CHECK(output("{% set inf = 1e308 * 10 %}{% set nan = inf - inf %}{{ [nan, 1, nan, 0, inf]|sort|length }}{{ nan == "
               "nan }}") == "5False");
}

TEST_CASE("J12: raised messages", "[jinja][hostile]") {
  const Outcome outcome = run("{{ raise_exception('x\xFF\n' * 200000) }}");
  CHECK(outcome.code == Errc::kTemplateError);
  CHECK(outcome.text.size() <= 512);
  CHECK(outcome.text.size() > 400);
  CHECK(outcome.text.find("raise_exception: x\xEF\xBF\xBD\\x0Ax") != std::string::npos);
  const auto chat = ChatTemplate::compile("{{ 1 }}\n{{ raise_exception('No: ' ~ 1 ~ '!') }}", "", "");
  REQUIRE(chat.ok());
  const auto failed = chat->render(Value::object());
  REQUIRE(!failed.ok());
  CHECK(corbel::raised_text(failed.status()) == "No: 1!");
  CHECK(failed.status().message() == "template line 2, column 4: raise_exception: No: 1!");
  CHECK(corbel::raised_text(corbel::Status(Errc::kTemplateError, "something else")).empty());
}

TEST_CASE("J13: what is not closed", "[jinja][hostile]") {
  for (const char* source : {"{% if true %}",
                             "{% for x in y %}",
                             "{% macro m() %}",
                             "{% set x %}",
                             "{% call m() %}",
                             "{% filter upper %}",
                             "{% with %}",
                             "{% raw %}",
                             "{# x",
                             "{{ 'x",
                             "{{ \"x }}",
                             "{{ x",
                             "{% if",
                             "{{ (1 }}",
                             "{{ '\\",
                             "{{",
                             "{%",
                             "{#",
                             "{% endfor %}",
                             "{% if true %}{% endfor %}",
                             "{% else %}",
                             "{% elif true %}",
                             "{% nope %}",
                             "{% %}"}) {
    const auto chat = ChatTemplate::compile(source, "", "");
    CAPTURE(source);
    CHECK(chat.status().code() == Errc::kTemplateError);
    check_error(source, Errc::kTemplateError, "template line 1, column ");
  }
  CHECK(ChatTemplate::compile(repeat("{{", 1u << 19), "", "").status().code() == Errc::kTemplateError);
  CHECK(ChatTemplate::compile(repeat("{% raw %}", 100'000), "", "").status().code() == Errc::kTemplateError);
  CHECK(ChatTemplate::compile(std::string((1u << 20) + 1, 'x'), "", "").status().code() == Errc::kLimitExceeded);
  CHECK(ChatTemplate::compile(std::string(1u << 20, 'x'), "", "").ok());
}

TEST_CASE("J15: output", "[jinja][hostile]") {
  check_error("{% for i in range(20) %}{{ 'x' * 1000000 }}{% endfor %}", Errc::kTemplateBudget,
              "writes more than 16777216 bytes");
  TemplateLimits limits;
  limits.output_bytes = 10;
  CHECK(run("1234567890", "{}", limits).code == Errc::kOk);
  CHECK(run("12345678901", "{}", limits).code == Errc::kTemplateBudget);
  CHECK(run("{% set x %}12345678901{% endset %}", "{}", limits).code == Errc::kTemplateBudget);
  limits.fuel = 20;
  CHECK(run("{% for i in range(9) %}{% endfor %}", "{}", limits).code == Errc::kTemplateBudget);
}

TEST_CASE("every prefix of a template compiles or fails cleanly", "[jinja][hostile]") {
  const std::string source =
      "{%- macro m(a, b='x') -%}{{ a|upper ~ b }}{%- endmacro %}{% for x in [1, 2, {'k': (3, 'y')}] if x is defined %}"
      "{% set z = x[0:1] if x is string else loop.index0 %}{{ m(z, b=\"q\\n\") }}{# c #}{% raw %}{{ }}{% endraw %}{% "
      "endfor %}";
  std::size_t good = 0;
  for (std::size_t size = 0; size <= source.size(); ++size) {
    const Outcome outcome = run(std::string_view(source).substr(0, size));
    if (outcome.code == Errc::kOk) ++good;
    CHECK((outcome.code == Errc::kOk || outcome.code == Errc::kTemplateError));
  }
  CHECK(good > 2);
  CHECK(run(source).code == Errc::kOk);
}

TEST_CASE("the deepest templates and values fit a small stack", "[jinja][stack]") {
  std::string failed;
  const bool started = corbel_test::on_small_stack([&] {
    const auto expect = [&](const std::string& source, Errc code, std::string_view variables) {
      const Outcome outcome = run(source, variables);
      if (outcome.code != code) failed += source.substr(0, 40) + " -> " + outcome.text.substr(0, 100) + "\n";
    };
    const auto ok = [&](const std::string& source, std::string_view variables = "{}") {
      expect(source, Errc::kOk, variables);
    };
    ok("{{ " + repeat("(", 199) + "1" + repeat(")", 199) + " }}");
    ok("{{ " + repeat("[", 199) + repeat("]", 199) + " }}");
    ok("{{ " + repeat("{1:", 198) + "1" + repeat("}", 198) + " }}");
    ok("{{ " + repeat("not ", 199) + "1 }}");
    ok("{{ " + repeat("-", 199) + "1 }}");
    ok("{{ " + repeat("0 or (1 and (2 + (", 33) + "1" + repeat(")))", 33) + " }}");
    ok("{{ " + repeat("1 if 1 else ", 198) + "1 }}");
    ok("{{ " + repeat("dict(a=", 99) + "1" + repeat(")", 99) + " }}");
    ok("{{ " + repeat("1|default(", 99) + "1" + repeat(")", 99) + " }}");
    ok("{{ " + repeat("1 is eq(", 99) + "1" + repeat(")", 99) + " }}");
    ok("{{ " + repeat("1 is eq [", 99) + "1" + repeat("]", 99) + " }}");
    ok("{{ " + repeat("x[", 99) + "0" + repeat("]", 99) + " }}", R"({"x": [0]})");
    ok("{{ " + repeat("x[:", 99) + "0" + repeat("]|length", 99) + " }}", R"({"x": [0]})");
    ok("{{ " + repeat("1 < (", 99) + "0" + repeat(")", 99) + " }}");
    ok("{{ " + repeat("[1 if ", 99) + "1" + repeat(" else 2]", 99) + " }}");
    ok("{% for " + repeat("(", 198) + "x" + repeat(",)", 198) + " in [] %}{% endfor %}");
    ok(repeat("{% if true %}", 200) + repeat("{% endif %}", 200));
    ok("{% macro m(n) %}{{ m(n - 1) if n > 0 }}{% endmacro %}{{ m(198) }}");
    const std::string deep = "{% set n = namespace(v=[]) %}{% for i in range(198) %}{% set n.v = [n.v] %}{% endfor %}";
    ok(deep + "{{ n.v }}{{ n.v|tojson(indent=1) }}{{ n.v == n.v }}{{ [n.v] < [n.v] }}{{ [n.v, n.v]|sort|length }}");
    const std::string dicts =
        "{% set n = namespace(v={}) %}{% for i in range(198) %}{% set n.v = {'a': n.v} %}{% endfor %}";
    ok(dicts + "{{ n.v }}{{ n.v|tojson }}{{ n.v == n.v }}");
    const std::string keys = "{% set n = namespace(v=()) %}{% for i in range(190) %}{% set n.v = (n.v,) %}{% endfor %}";
    ok(keys + "{{ {n.v: 1}[n.v] }}");
    ok("{{ v }}{{ v|tojson }}", "{\"v\": " + repeat("[", 120) + repeat("]", 120) + "}");
    expect("{{ " + repeat("(", 10'000) + " }}", Errc::kTemplateError, "{}");
    expect("{{ " + repeat("not ", 10'000) + "1 }}", Errc::kDepthExceeded, "{}");
    expect("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", Errc::kTemplateBudget, "{}");
    expect("{% set n = namespace() %}{% set n.a = {'x': [n]} %}{{ n }}", Errc::kTemplateError, "{}");
  });
  REQUIRE(started);
  CHECK(failed == "");
}

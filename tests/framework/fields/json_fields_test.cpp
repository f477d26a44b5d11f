#include "framework/fields/json_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/net/identity.h"
#include "tests/refusal_of.h"

namespace strait::fields {
namespace {

using nlohmann::json;

enum class Color { red, green };

struct Layers {
  int first = 0;
  int last = 0;
};

struct Inner {
  std::string name;
  std::optional<double> rate;
};

struct Outer {
  net::ProcessName process;
  Color color = Color::red;
  std::vector<Layers> layers;
  std::vector<Inner> inner;
  std::pair<int, int> ports;
  std::map<std::string, std::vector<Layers>> models;
};

void describe(auto& f, Is<Inner> auto& m) { f("name", m.name), f("rate", m.rate); }
void describe(auto& f, Is<Outer> auto& m) {
  f("process", m.process), f("color", m.color), f("layers", m.layers), f("inner", m.inner);
  f("ports", m.ports), f("models", m.models);
}

}  // namespace

// Of a part; as a whole it is written by its description.
struct Sealed {
  int number = 0;
};
void describe(auto& f, Is<Sealed> auto& m) { f("number", m.number); }
struct Holder {
  Sealed part;
};
void describe(auto& f, Is<Holder> auto& m) { f("part", m.part); }
template <>
struct OwnJson<Sealed> {
  static json write(const Sealed& sealed) { return {{"sealed", to_object(sealed)}}; }
  static Sealed read(const json& from) { return from_object<Sealed>(from.at("sealed"), "sealed"); }
};

template <>
inline constexpr std::tuple kListForm<Layers> = {&Layers::first, &Layers::last};
template <>
inline constexpr std::array kEnumNames<Color> = {"red", "green"};

namespace {

Outer some() {
  return {{1, 2}, Color::green,     {{0, 3}, {4, 7}}, {{"a", 1.5}, {"b", std::nullopt}},
          {7, 9}, {{"a", {{1, 2}}}}};
}

TEST(JsonFields, WritesEachKindOfValue) {
  EXPECT_EQ(to_object(some()), json::parse(R"({"process":"1.2","color":"green",
    "layers":[[0,3],[4,7]],"inner":[{"name":"a","rate":1.5},{"name":"b","rate":null}],
    "ports":[7,9],"models":{"a":[[1,2]]}})"));
}

TEST(JsonFields, WritesAPartByItsOwnJsonAndAWholeByItsDescription) {
  const json object = to_object(Holder{{7}});
  EXPECT_EQ(object, json::parse(R"({"part":{"sealed":{"number":7}}})"));
  EXPECT_EQ(from_object<Holder>(object, "holder").part.number, 7);
}

TEST(JsonFields, ReadsBackWhatItWrote) {
  const json object = to_object(some());
  EXPECT_EQ(to_object(from_object<Outer>(object, "outer")), object);
}

TEST(JsonFields, OmitsAbsentValueInMessages) {
  const Inner absent{"b", std::nullopt};
  EXPECT_EQ(to_object(absent, JsonStyle{}), json::parse(R"({"name":"b"})"));
  EXPECT_EQ(from_object<Inner>(json::parse(R"({"name":"b"})"), "inner", JsonStyle{}).rate,
            std::nullopt);
}

std::string refusal(const char* key, const json& value) {
  json object = to_object(some());
  object[key] = value;
  return refusal_of<MessageError>([&] { from_object<Outer>(object, "outer"); });
}

TEST(JsonFields, NamesMessageAndFieldInErrors) {
  EXPECT_EQ(refusal("color", "blue"), "outer: field color is not a known name");
  EXPECT_EQ(refusal("process", "x"), "outer: field process is not the name of a process");
  EXPECT_EQ(refusal("ports", {1}), "outer: field ports is not a list of 2");
  EXPECT_EQ(refusal("layers", {{1, 2.5}}), "outer: field layers is not a whole number");
  EXPECT_EQ(refusal("inner", {1}), "outer: field inner is not a list of objects");
  EXPECT_EQ(refusal("inner", {{{"name", "a"}}}), "outer, inner: field rate is missing");
  EXPECT_EQ(refusal("models", {{"a", 1}}), "outer, models: field a is not a list");
  EXPECT_EQ(refusal("more", 1), "outer: field more is unknown to this build");
  EXPECT_THROW(from_object<Outer>(json::array(), "outer"), MessageError);
  EXPECT_EQ(refusal_of<MessageError>([] { from_text<Inner>("{\"a\": [1", "inner", {.depth = 1}); }),
            "inner: lists and objects are nested deeper than 1");
}

}  // namespace
}  // namespace strait::fields

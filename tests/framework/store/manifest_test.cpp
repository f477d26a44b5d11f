#include "framework/store/manifest.h"

#include <nlohmann/json.hpp>
#include <random>

#include "framework/store/file_hash.h"
#include "tests/framework/store/expect_store_error.h"

namespace strait::store {
namespace {

Manifest sample_manifest() {
  Manifest manifest;
  manifest.run_id = "0123456789abcdef0123456789abcdef";
  manifest.generation = 3;
  manifest.step = Step{200};
  manifest.model_hash = "model";
  manifest.recipe_hash = "recipe";
  manifest.plan_hash = "plan";
  manifest.build = "0.1.0";
  manifest.layout = {{0, 0, 0, 5}, {1, 0, 6, 11}};
  manifest.data = {"data", 4096, Step{200}};
  manifest.codec_generation = 2;
  manifest.sync = {{"round", "17"}};
  manifest.notes = {{"check", "\n  \"check\": \"00000000000000000000000000000000"}};
  manifest.files = {{"stage-0.replica-0.safetensors", 1234, "aa"}, {"b", 0, "bb"}};
  return manifest;
}

// The text of a manifest after an edit, with its own hash made right again: what remains is the
// field.
std::string edited(const std::function<void(nlohmann::json&)>& edit) {
  auto root = nlohmann::json::parse(sample_manifest().format());
  const std::string zeros(32, '0');
  root["check"] = zeros;
  edit(root);
  std::string text = root.dump(2) + "\n";
  const std::size_t place = text.find("\n  \"check\": \"");
  if (place != std::string::npos) text.replace(place + 13, 32, hash_text(text));
  return text;
}

void expect_refused_manifest(StoreError::Kind kind, const std::string& text,
                             std::vector<std::string> words) {
  words.emplace_back("step-200/manifest.json");
  expect_store_error(kind, words, [&] { Manifest::parse(text, "step-200/manifest.json"); });
}

TEST(Manifest, ReadsBackWhatItFormats) {
  const Manifest manifest = sample_manifest();
  EXPECT_EQ(Manifest::parse(manifest.format(), "f"), manifest);
  EXPECT_EQ(Manifest::parse(Manifest{}.format(), "f"), Manifest{});
}

TEST(Manifest, FindsEveryFlippedBit) {
  const std::string text = sample_manifest().format();
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = text;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      EXPECT_THROW(Manifest::parse(damaged, "f"), StoreError) << "byte " << i << ", bit " << bit;
    }
  }
}

TEST(Manifest, RefusesEveryTruncation) {
  const std::string text = sample_manifest().format();
  for (std::size_t size = 0; size < text.size(); ++size) {
    EXPECT_THROW(Manifest::parse(text.substr(0, size), "f"), StoreError) << size;
  }
}

TEST(Manifest, NamesEveryMissingField) {
  const auto root = nlohmann::json::parse(sample_manifest().format());
  for (const auto& [key, value] : root.items()) {
    const std::string name = key;
    expect_refused_manifest(StoreError::Kind::corrupt,
                            edited([&](nlohmann::json& json) { json.erase(name); }),
                            {"field " + name + " is missing"});
  }
}

TEST(Manifest, NamesEveryFieldOfAnotherType) {
  const auto root = nlohmann::json::parse(sample_manifest().format());
  for (const auto& [key, value] : root.items()) {
    if (key == "check") continue;
    const std::string name = key;
    expect_refused_manifest(StoreError::Kind::corrupt,
                            edited([&](nlohmann::json& json) { json[name] = true; }),
                            {"field " + name + " is not"});
  }
}

TEST(Manifest, RefusesWhatIsWrongInside) {
  const auto kind = StoreError::Kind::corrupt;
  expect_refused_manifest(kind, edited([](nlohmann::json& json) { json["step"] = -1; }),
                          {"field step is not a whole number from 0"});
  for (const char* name : {"", ".", "..", "../x", "a/b", "/etc/passwd"}) {
    expect_refused_manifest(kind,
                            edited([&](nlohmann::json& json) { json["files"][1]["name"] = name; }),
                            {"in files is not a plain file name"});
  }
  expect_refused_manifest(kind,
                          edited([](nlohmann::json& json) { json["files"][1] = json["files"][0]; }),
                          {"listed twice"});
  expect_refused_manifest(kind,
                          edited([](nlohmann::json& json) { json["layout"][1]["last"] = -1; }),
                          {"a number is not from 0 on"});
  expect_refused_manifest(kind,
                          edited([](nlohmann::json& json) { json["layout"][1].erase("last"); }),
                          {"layout: field last is missing"});
  expect_refused_manifest(kind, edited([](nlohmann::json& json) { json["notes"]["a"] = 1; }),
                          {"notes: field a is not a text"});
  expect_refused_manifest(kind, "{}", {"not a manifest"});
}

TEST(Manifest, DistinguishesOtherBuildFromDamage) {
  const auto kind = StoreError::Kind::mismatch;
  expect_refused_manifest(kind, edited([](nlohmann::json& json) { json["format_version"] = 2; }),
                          {"format version 2", "reads version 1"});
  expect_refused_manifest(kind, edited([](nlohmann::json& json) { json["colour"] = "red"; }),
                          {"field colour is unknown"});
}

TEST(Manifest, ListsWhatForbidsGoingOn) {
  const Manifest checkpoint = sample_manifest();
  Manifest run = checkpoint;
  run.run_id = "another";
  run.plan_hash = "another";
  EXPECT_TRUE(differences(checkpoint, run).empty());
  run.model_hash = "m2";
  run.recipe_hash = "r2";
  run.data.hash = "d2";
  run.data.rows = 1;
  EXPECT_THAT(differences(checkpoint, run),
              testing::ElementsAre(
                  "model_hash: checkpoint model, run m2", "recipe_hash: checkpoint recipe, run r2",
                  "data.hash: checkpoint data, run d2", "data.rows: checkpoint 4096, run 1"));
}

}  // namespace
}  // namespace strait::store

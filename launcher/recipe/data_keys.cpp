#include <filesystem>
#include <iterator>
#include <set>
#include <system_error>

#include "launcher/recipe/key_kinds.h"
#include "launcher/recipe/number_keys.h"
#include "launcher/recipe/recipe_keys.h"

namespace strait::recipe {

namespace {

using key_kinds::written_if_set;
using Data = Recipe::Data;

constexpr const char* kFiles =
    "a path, or a list of paths and { path = \"a.jsonl\", weight = 2.0 }";
constexpr std::size_t kMostFiles = 4096;
constexpr double kMostWeight = 1000;

template <auto Member>
constexpr auto in_data() {
  return [](auto& recipe) -> auto& { return recipe.data.*Member; };
}

// Why an entry of a list is no file; empty: it is one.
std::string fault_of_entry(const RecipeValue& entry) {
  if (key_kinds::is_clean_text(entry)) return "";
  if (!entry.is_object()) return entry.dump() + " is no path";
  for (const auto& [name, value] : entry.items()) {
    if (name != "path" && name != "weight") {
      return fmt::format("a file has no \"{}\", only path and weight", name);
    }
  }
  if (!entry.contains("path") || !key_kinds::is_clean_text(entry["path"])) {
    return "an entry has no path";
  }
  if (!entry.contains("weight")) return "";
  const RecipeValue& weight = entry["weight"];
  const bool fits =
      weight.is_number() && weight.get<double>() > 0 && weight.get<double>() <= kMostWeight;
  return fits ? ""
              : fmt::format("the weight of {} is {}, but must be a number above 0, up to {}",
                            entry["path"].dump(), weight.dump(), kMostWeight);
}

// "a.jsonl", "./a.jsonl" and a link to it are one file.
std::string place_of(const std::filesystem::path& path) {
  std::error_code failed;  // then it is compared as it is written
  const std::filesystem::path whole = std::filesystem::absolute(path, failed);
  if (failed) return path.lexically_normal().string();
  const std::filesystem::path place = std::filesystem::weakly_canonical(whole, failed);
  return (failed ? whole.lexically_normal() : place).string();
}

std::string fault_of_files(const RecipeValue& value) {
  if (key_kinds::is_clean_text(value)) return "";
  if (!value.is_array()) {
    return value.is_object() ? "a file with a weight is written in a list" : "it is neither";
  }
  if (value.empty()) return "the list is empty";
  if (value.size() > kMostFiles) return fmt::format("there are more than {} files", kMostFiles);
  std::set<std::string> paths;
  for (const RecipeValue& entry : value) {
    if (std::string fault = fault_of_entry(entry); !fault.empty()) return fault;
    const std::string path = (entry.is_object() ? entry["path"] : entry).get<std::string>();
    if (!paths.insert(place_of(path)).second) {
      return fmt::format("{} is listed twice; list it once, with a weight", path);
    }
  }
  return "";
}

std::vector<data::DataFile> files_of(const RecipeValue& value) {
  if (value.is_string()) return {data::DataFile{value.get<std::string>()}};
  std::vector<data::DataFile> files;
  for (const RecipeValue& entry : value) {
    const bool plain = entry.is_string();
    files.push_back({(plain ? entry : entry["path"]).get<std::string>(),
                     plain ? 1.0 : entry.value("weight", 1.0)});
  }
  return files;
}

// One file without a weight is a text, as in recipes from before there were lists.
RecipeValue value_of(const std::vector<data::DataFile>& files) {
  if (files.empty()) return {};
  RecipeValue list = RecipeValue::array();
  for (const data::DataFile& file : files) {
    if (file.weight == 1) {
      list.push_back(file.path);
    } else {
      list.push_back({{"path", file.path}, {"weight", file.weight}});
    }
  }
  return list.size() == 1 && list[0].is_string() ? list[0] : list;
}

template <class Field>
RecipeKey data_files(const std::string& name, Field field_of, const std::string& help) {
  RecipeKey key{name, kFiles, help, {}, {}, {}};
  key.set = [field_of](const RecipeValue& value, Recipe& recipe) {
    const bool fits = fault_of_files(value).empty();
    if (fits) field_of(recipe) = files_of(value);
    return fits;
  };
  key.get = [field_of](const Recipe& recipe) { return value_of(field_of(recipe)); };
  key.objection = fault_of_files;
  return key;
}

RecipeKey hold_out() {
  RecipeKey key = key_kinds::number("data.hold_out", in_data<&Data::hold_out>(), {0, 1},
                                    "share of the records of data.train that are evaluated and "
                                    "not trained on, drawn by the seed; absent: none");
  key.allowed = "a number from 0 to below 1";
  key.set = [set = std::move(key.set)](const RecipeValue& value, Recipe& recipe) {
    return value != 1 && set(value, recipe);
  };
  return written_if_set(std::move(key));
}

}  // namespace

std::vector<RecipeKey> data_keys() {
  using key_kinds::choice;
  using key_kinds::flag;
  using key_kinds::integer;
  return {
      data_files("data.train", in_data<&Data::train>(),
                 "text, JSONL or Parquet (text | prompt+completion | messages), or token files"),
      data_files("data.eval", in_data<&Data::eval>(), "the same, for evaluation"),
      hold_out(),
      key_kinds::text("data.tokenizer", in_data<&Data::tokenizer>(), "\"bytes\" or a path",
                      "bytes, or a directory with tokenizer.json; absent: the model's own"),
      written_if_set(choice("data.chat_template", in_data<&Data::chat_template>(),
                            "how messages become text; own: by the template of the tokenizer's "
                            "directory; absent: own")),
      integer("data.row", in_data<&Data::row>(), {2, kLongestRow}, "tokens of a packed row"),
      flag("data.shuffle", in_data<&Data::shuffle>(),
           "visit the rows in an order drawn from seed, epoch and replica"),
      written_if_set(choice("data.targets", in_data<&Data::targets>(),
                            "what of a record is learnt: its answers, all of it, its last answer; "
                            "absent: assistant")),
      written_if_set(choice("data.too_long", in_data<&Data::too_long>(),
                            "records longer than a row, unless they are plain text; absent: "
                            "refuse")),
      written_if_set(choice("data.packing", in_data<&Data::packing>(),
                            "of records into rows: into the first row with room, the longest "
                            "first, or each into its own; absent: first_fit")),
      written_if_set(integer("data.overlap", in_data<&Data::overlap>(), {0, kLongestRow - 1},
                             "tokens of context that each further row of a long text repeats; "
                             "absent: 0"))};
}

}  // namespace strait::recipe

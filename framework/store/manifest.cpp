#include "framework/store/manifest.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "framework/fields/bounded_json.h"
#include "framework/store/file_hash.h"
#include "framework/store/store_error.h"

namespace strait::store {
namespace {

constexpr std::string_view kCheckKey = "\n  \"check\": \"";
constexpr std::size_t kHashDigits = 32;
constexpr std::size_t kLongestName = 255;

// Reads the fields of one object and reports errors by field. Every field must exist, and every
// field must be read: an unknown one comes from a newer build.
class FieldReader {
 public:
  FieldReader(const nlohmann::json& object, std::string where)
      : object_(object), where_(std::move(where)) {
    if (!object_.is_object()) refuse("it is not an object");
  }

  const nlohmann::json& any(const std::string& key) {
    known_.insert(key);
    const auto found = object_.find(key);
    if (found == object_.end()) refuse(fmt::format("the field \"{}\" is missing", key));
    return *found;
  }
  std::string text(const std::string& key) {
    const nlohmann::json& value = any(key);
    if (!value.is_string()) wrong(key, value, "a string");
    return value.get<std::string>();
  }
  std::int64_t count(const std::string& key) {
    const nlohmann::json& value = any(key);
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > INT64_MAX) {
      wrong(key, value, "a whole number from 0 on");
    }
    return value.get<std::int64_t>();
  }
  const nlohmann::json& list(const std::string& key) {
    const nlohmann::json& value = any(key);
    if (!value.is_array()) wrong(key, value, "a list");
    return value;
  }
  std::map<std::string, std::string> texts(const std::string& key) {
    const nlohmann::json& value = any(key);
    if (!value.is_object()) wrong(key, value, "an object of strings");
    std::map<std::string, std::string> values;
    for (const auto& [name, text] : value.items()) {
      if (!text.is_string()) wrong(fmt::format("{}.{}", key, name), text, "a string");
      values[name] = text.get<std::string>();
    }
    return values;
  }
  void nothing_else() const {
    for (const auto& [key, value] : object_.items()) {
      if (known_.count(key) == 0) {
        throw StoreError(StoreError::Kind::mismatch,
                         fmt::format("{}: the field \"{}\" is unknown to this build", where_, key));
      }
    }
  }
  [[noreturn]] void refuse(const std::string& why) const {
    throw StoreError(StoreError::Kind::corrupt, where_ + ": " + why);
  }

 private:
  [[noreturn]] void wrong(const std::string& key, const nlohmann::json& value,
                          const char* expected) const {
    refuse(fmt::format("the field \"{}\" is {} where {} is expected", key, value.type_name(),
                       expected));
  }

  const nlohmann::json& object_;
  std::string where_;
  std::set<std::string> known_;
};

ShardFile parse_shard(const nlohmann::json& entry, const std::string& where) {
  FieldReader fields(entry, where);
  ShardFile shard{fields.text("name"), static_cast<std::uint64_t>(fields.count("size")),
                  fields.text("hash")};
  fields.nothing_else();
  const bool plain = !shard.name.empty() && shard.name.size() <= kLongestName &&
                     shard.name != "." && shard.name != ".." &&
                     shard.name.find('/') == std::string::npos &&
                     shard.name.find('\0') == std::string::npos;
  if (!plain) fields.refuse("its \"name\" is not a plain file name");
  return shard;
}

Share parse_share(const nlohmann::json& entry, const std::string& where) {
  FieldReader fields(entry, where);
  const Share share{fields.count("stage"), fields.count("replica"), fields.count("first"),
                    fields.count("last")};
  fields.nothing_else();
  return share;
}

DataPosition parse_data(const nlohmann::json& entry, const std::string& where) {
  FieldReader fields(entry, where);
  DataPosition data{fields.text("hash"), fields.count("rows"), Step{fields.count("next_step")}};
  fields.nothing_else();
  return data;
}

// The position of the manifest's own hash. The first match is the right one: in nested objects the
// key is indented further, and line breaks in strings are escaped.
std::size_t check_digits(std::string_view text) {
  const std::size_t found = text.find(kCheckKey);
  if (found == std::string_view::npos) return found;
  const std::size_t start = found + kCheckKey.size();
  return start + kHashDigits <= text.size() ? start : std::string_view::npos;
}

std::string hash_without_check(std::string text, std::size_t digits) {
  // The hash covers the text with its own digits as zeros.
  text.replace(digits, kHashDigits, kHashDigits, '0');
  return hash_text(text);
}

void verify_check(std::string_view text, const std::string& file) {
  const std::size_t digits = check_digits(text);
  if (digits == std::string_view::npos) {
    throw StoreError(StoreError::Kind::corrupt,
                     file + " is not a manifest: the field \"check\" is missing");
  }
  const std::string_view claimed = text.substr(digits, kHashDigits);
  const std::string found = hash_without_check(std::string(text), digits);
  if (claimed != found) {
    throw StoreError(
        StoreError::Kind::corrupt,
        fmt::format("{} is damaged: its own hash should be {} and is {}", file, found, claimed));
  }
}

}  // namespace

Manifest Manifest::parse(std::string_view text, const std::string& file) {
  verify_check(text, file);
  nlohmann::json root;
  try {
    root = fields::parse_bounded_json(text);
  } catch (const fields::JsonError& error) {
    throw StoreError(StoreError::Kind::corrupt, fmt::format("{}: {}", file, error.what()));
  }
  FieldReader fields(root, file);
  const std::int64_t version = fields.count("format_version");
  if (version != kFormatVersion) {
    throw StoreError(StoreError::Kind::mismatch,
                     fmt::format("{} has format version {}, this build reads version {}", file,
                                 version, kFormatVersion));
  }
  fields.text("check");
  Manifest manifest;
  manifest.run_id = fields.text("run_id");
  manifest.generation = fields.count("generation");
  manifest.step = Step{fields.count("step")};
  manifest.model_hash = fields.text("model_hash");
  manifest.recipe_hash = fields.text("recipe_hash");
  manifest.plan_hash = fields.text("plan_hash");
  manifest.build = fields.text("build");
  manifest.data = parse_data(fields.any("data"), file + ": data");
  manifest.codec_generation = fields.count("codec_generation");
  manifest.sync = fields.texts("sync");
  manifest.notes = fields.texts("notes");
  for (const nlohmann::json& entry : fields.list("layout")) {
    manifest.layout.push_back(
        parse_share(entry, fmt::format("{}: layout {}", file, manifest.layout.size())));
  }
  std::set<std::string> names;
  for (const nlohmann::json& entry : fields.list("files")) {
    manifest.files.push_back(
        parse_shard(entry, fmt::format("{}: files {}", file, manifest.files.size())));
    if (!names.insert(manifest.files.back().name).second) {
      fields.refuse(fmt::format("the file {} is listed twice", manifest.files.back().name));
    }
  }
  fields.nothing_else();
  return manifest;
}

std::string Manifest::format() const {
  nlohmann::json root{{"format_version", kFormatVersion},
                      {"check", std::string(kHashDigits, '0')},
                      {"run_id", run_id},
                      {"generation", generation},
                      {"step", number(step)},
                      {"model_hash", model_hash},
                      {"recipe_hash", recipe_hash},
                      {"plan_hash", plan_hash},
                      {"build", build},
                      {"codec_generation", codec_generation},
                      {"sync", sync},
                      {"notes", notes},
                      {"layout", nlohmann::json::array()},
                      {"files", nlohmann::json::array()}};
  root["data"] = {{"hash", data.hash}, {"rows", data.rows}, {"next_step", number(data.next_step)}};
  for (const Share& share : layout) {
    root["layout"].push_back({{"stage", share.stage},
                              {"replica", share.replica},
                              {"first", share.first},
                              {"last", share.last}});
  }
  for (const ShardFile& shard : files) {
    root["files"].push_back({{"name", shard.name}, {"size", shard.size}, {"hash", shard.hash}});
  }
  std::string text = root.dump(2) + "\n";
  const std::size_t digits = check_digits(text);
  text.replace(digits, kHashDigits, hash_without_check(text, digits));
  return text;
}

std::vector<std::string> differences(const Manifest& checkpoint, const Manifest& run) {
  std::vector<std::string> lines;
  const auto compare = [&lines](const char* field, const auto& there, const auto& here) {
    if (there != here) {
      lines.push_back(fmt::format("{}: checkpoint {}, run {}", field, there, here));
    }
  };
  compare("model_hash", checkpoint.model_hash, run.model_hash);
  compare("recipe_hash", checkpoint.recipe_hash, run.recipe_hash);
  compare("data.hash", checkpoint.data.hash, run.data.hash);
  compare("data.rows", checkpoint.data.rows, run.data.rows);
  return lines;
}

}  // namespace strait::store

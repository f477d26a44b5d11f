#include "framework/store/manifest.h"

#include <functional>
#include <system_error>

#include "framework/fields/json_fields.h"
#include "framework/store/file_hash.h"
#include "framework/store/store_error.h"

namespace strait::store {
namespace {

constexpr std::string_view kCheckKey = "\n  \"check\": \"";
constexpr std::size_t kHashDigits = 32;
constexpr std::size_t kLongestName = 255;

// What the descriptions do not say.
void check(const Manifest& manifest, const std::string& file) {
  const auto refuse = [&file](const std::string& why) {
    throw fields::MessageError(file + ": " + why);
  };
  const auto from_zero = [](auto... numbers) { return ((numbers >= 0) && ...); };
  bool fits = from_zero(manifest.generation, manifest.codec_generation, manifest.data.rows);
  for (const Share& share : manifest.layout) {
    fits = fits && from_zero(share.stage, share.replica, share.first, share.last);
  }
  if (!fits) refuse("a number is not from 0 on");
  std::set<std::string> names;
  for (const ShardFile& shard : manifest.files) {
    const std::string& name = shard.name;
    const bool plain = !name.empty() && name.size() <= kLongestName && name != "." &&
                       name != ".." && name.find_first_of(std::string_view("/\0", 2)) == name.npos;
    if (!plain) refuse("the name \"" + name + "\" in files is not a plain file name");
    if (!names.insert(name).second) refuse("the file " + name + " is listed twice");
  }
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
                     file + " is not a manifest: field check is missing");
  }
  const std::string_view claimed = text.substr(digits, kHashDigits);
  const std::string found = hash_without_check(std::string(text), digits);
  if (claimed != found) {
    throw StoreError(StoreError::Kind::corrupt,
                     "{} is damaged: its own hash should be {} and is {}", file, found, claimed);
  }
}

constexpr std::string_view kWeightsSuffix = ".weights.safetensors";

}  // namespace

void describe(auto& f, fields::Is<Share> auto& m) {
  f("stage", m.stage), f("replica", m.replica), f("first", m.first), f("last", m.last);
}
void describe(auto& f, fields::Is<DataPosition> auto& m) {
  f("hash", m.hash), f("rows", m.rows), f("next_step", m.next_step);
}
void describe(auto& f, fields::Is<Manifest> auto& m) {
  f("run_id", m.run_id), f("generation", m.generation), f("step", m.step);
  f("model_hash", m.model_hash), f("recipe_hash", m.recipe_hash), f("plan_hash", m.plan_hash);
  f("build", m.build), f("layout", m.layout), f("data", m.data);
  f("codec_generation", m.codec_generation), f("sync", m.sync), f("notes", m.notes);
  f("files", m.files);
}

Manifest Manifest::parse(std::string_view text, const std::string& file) {
  verify_check(text, file);
  try {
    const nlohmann::json root = fields::parse_bounded_json(text);
    fields::JsonReader reader(root, fields::kFileStyle, file);
    std::int64_t version = 0;
    std::string own_hash;
    reader("format_version", version), reader("check", own_hash);
    if (version != kFormatVersion) {
      throw StoreError(StoreError::Kind::mismatch,
                       "{} has format version {}, this build reads version {}", file, version,
                       kFormatVersion);
    }
    Manifest manifest;
    reader.whole(manifest);
    check(manifest, file);
    return manifest;
  } catch (const fields::JsonError& error) {
    throw StoreError(StoreError::Kind::corrupt, "{}: {}", file, error.what());
  } catch (const fields::UnknownField& error) {
    // The text's own hash is right, so an unknown field is not damage but another build.
    throw StoreError(StoreError::Kind::mismatch, error.what());
  } catch (const fields::MessageError& error) {
    throw StoreError(StoreError::Kind::corrupt, error.what());
  }
}

std::string Manifest::format() const {
  nlohmann::json root = fields::to_object(*this);
  root["format_version"] = kFormatVersion;
  root["check"] = std::string(kHashDigits, '0');
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

std::string shard_name(std::int64_t stage, std::int64_t replica) {
  return fmt::format("stage-{}.replica-{}.safetensors", stage, replica);
}

std::string caches_name(std::int64_t stage, std::int64_t replica) {
  return fmt::format("stage-{}.replica-{}.caches.safetensors", stage, replica);
}

std::string weights_name(std::int64_t stage, std::int64_t replica) {
  return fmt::format("stage-{}.replica-{}{}", stage, replica, kWeightsSuffix);
}

std::string hashes_name(std::int64_t stage, std::int64_t replica) {
  return fmt::format("stage-{}.replica-{}{}", stage, replica, kHashesSuffix);
}

std::vector<std::string> file_names(std::int64_t stage, std::int64_t replica) {
  return {weights_name(stage, replica), shard_name(stage, replica), caches_name(stage, replica),
          hashes_name(stage, replica)};
}

std::vector<ShardFile> files_of(const Manifest& manifest, Part part) {
  std::vector<ShardFile> files = manifest.files;
  if (part == Part::none) return {};
  const auto is = [](std::string_view suffix) {
    return [suffix](const ShardFile& file) { return file.name.ends_with(suffix); };
  };
  std::erase_if(files, is(kHashesSuffix));
  if (part == Part::all) return files;
  std::erase_if(files, std::not_fn(is(kWeightsSuffix)));
  return files;
}

bool has_size(const std::filesystem::path& path, std::uint64_t bytes) {
  std::error_code error;
  return std::filesystem::file_size(path, error) == bytes && !error;
}

}  // namespace strait::store

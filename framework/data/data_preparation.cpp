#include "framework/data/data_preparation.h"

#include <fmt/ranges.h>
#include <glob.h>

#include <algorithm>
#include <set>

#include "framework/data/file_packer.h"
#include "framework/data/sample_order.h"
#include "framework/data/token_cache.h"
#include "framework/store/atomic_file.h"
#include "framework/store/step_folders.h"
#include "framework/store/store_error.h"

namespace strait::data {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_data(store::StoreError::Kind kind, const std::string& why) {
  throw store::StoreError(kind, why);
}

constexpr const char* kDocuments = "documents";
constexpr const char* kPreferences = "preferences";
constexpr const char* kRated = "rated answers";

// What documents are, in a token file's metadata; empty: not preferences.
std::string documents_of(bool preferences, bool rated) {
  if (!preferences) return "";
  return rated ? kRated : kPreferences;
}

// Rows of preferences, from wherever they are, hold pairs of documents that both have a target.
void check_pairs(const TokenFile& tokens, const fs::path& source) {
  for (std::int64_t row = 0; row < tokens.rows(); ++row) {
    const store::SampleId sample{row};
    const std::span<const std::int32_t> documents = tokens.documents(sample);
    std::set<std::int32_t> learnt;
    for (const std::int64_t place : tokens.targets(sample)) {
      learnt.insert(documents[static_cast<std::size_t>(place)]);
    }
    const auto lengths = tokens.document_lengths(sample);
    if (lengths.size() % 2 == 0 && learnt.size() == lengths.size()) continue;
    refuse_data(
        store::StoreError::Kind::bad_input,
        fmt::format("{}: row {} has {} documents, {} of them with targets; rows of preferences "
                    "hold pairs, the chosen answer before the rejected one, and each has a target",
                    source.string(), row, lengths.size(), learnt.size()));
  }
}

void check_form(const TokenFile& tokens, const fs::path& source, const DataOptions& options) {
  const auto found = tokens.metadata().find(kDocuments);
  const std::string has = found == tokens.metadata().end() ? "" : found->second;
  const std::string needed = documents_of(options.preferences, options.rated);
  if (has != needed && needed.empty()) {
    refuse_data(store::StoreError::Kind::bad_input,
                fmt::format("{} has {}, and train.preference.loss is missing; set it, or take "
                            "other data",
                            source.string(), has));
  }
  if (has != needed) {
    refuse_data(store::StoreError::Kind::bad_input,
                fmt::format("{} has no {}, which train.preference.loss needs; take JSONL with {}",
                            source.string(), needed,
                            options.rated ? "\"prompt\", \"completion\" and \"label\""
                                          : "\"chosen\" and \"rejected\""));
  }
  if (options.preferences) check_pairs(tokens, source);
}

// A record that is cut loses one of its two answers.
void check_too_long(const DataOptions& options) {
  const TooLong too_long = options.rows.too_long;
  if (!options.preferences || (too_long != TooLong::truncate && too_long != TooLong::split)) return;
  refuse_data(store::StoreError::Kind::bad_input,
              "data.too_long cuts records that are longer than a row, but a preference is in one "
              "row; set it to \"drop\", or leave it out");
}

PackedFile read_token_file(const fs::path& source, const DataOptions& options) {
  if (options.hold_out > 0) {
    refuse_data(store::StoreError::Kind::bad_input,
                fmt::format("{} is a token file, whose records are packed already, so "
                            "data.hold_out has none to choose from; set data.eval to another file",
                            source.string()));
  }
  auto tokens = std::make_shared<const TokenFile>(source);
  if (tokens->row_length() != options.rows.row) {
    refuse_data(
        store::StoreError::Kind::bad_input,
        fmt::format("{} has rows of {} tokens, but the recipe says data.row = {}; make them equal",
                    source.string(), tokens->row_length(), options.rows.row));
  }
  check_form(*tokens, source, options);
  return {std::move(tokens), nullptr, {}};
}

std::string name_of_tokenizer(const std::string& tokenizer) {
  if (tokenizer == kByteTokenizer) return kByteTokenizer;
  return (fs::absolute(tokenizer).lexically_normal() / "").parent_path().filename().string();
}

// Records what made the tokens of a data set, if its files say so. All must agree.
void take_tokenizer(PreparedData& data, const fs::path& source, const std::string& tokenizer,
                    const std::string& name) {
  if (tokenizer.empty() || tokenizer == data.tokenizer) return;
  if (!data.tokenizer.empty()) {
    refuse_data(store::StoreError::Kind::mismatch,
                fmt::format("{} was made by another tokenizer or chat template ({}) than the files "
                            "before it ({}); prepare it again",
                            source.string(), tokenizer, data.tokenizer));
  }
  data.tokenizer = tokenizer;
  data.tokenizer_name = name;
}

std::vector<std::string> matches_of(const std::string& pattern) {
  glob_t found{};
  const int failed = ::glob(pattern.c_str(), 0, nullptr, &found);
  std::vector<std::string> paths;
  for (std::size_t i = 0; failed == 0 && i < found.gl_pathc; ++i) {
    if (fs::is_regular_file(found.gl_pathv[i])) paths.emplace_back(found.gl_pathv[i]);
  }
  ::globfree(&found);
  if (!paths.empty()) return paths;
  refuse_data(store::StoreError::Kind::bad_input,
              fmt::format("no file here ({}) matches {}", fs::current_path().string(), pattern));
}

bool is_of_split(const fs::path& file, const std::string& split) {
  const std::string name = file.filename().string();
  if (!has_records(file) || !name.starts_with(split)) return false;
  return std::string_view("-._").find(name[split.size()]) != std::string_view::npos;
}

std::vector<std::string> files_of_split(const fs::path& directory, bool evaluation) {
  const std::vector<std::string> splits = evaluation
                                              ? std::vector<std::string>{"validation", "test"}
                                              : std::vector<std::string>{"train"};
  // The first split that has files: a "test" is taken only where there is no "validation".
  for (const std::string& split : splits) {
    for (const fs::path& folder : {directory, directory / "data"}) {
      std::vector<std::string> paths;
      for (const fs::path& file : store::entries_of(folder)) {
        if (is_of_split(file, split)) paths.push_back(file.string());
      }
      std::ranges::sort(paths);
      if (!paths.empty()) return paths;
    }
  }
  refuse_data(
      store::StoreError::Kind::bad_input,
      fmt::format("{0} is a directory without Parquet or JSONL files whose names begin with "
                  "{1}; name its files, for instance \"{0}/*.parquet\"",
                  directory.string(), fmt::join(splits, " or ")));
}

// Combines the rows of several files to one data set.
class Mix {
 public:
  void add(std::shared_ptr<const TokenFile> file, DataFile source) {
    rows_.push_back({file->rows(), source.weight});
    files_.push_back(std::move(file));
    paths_.push_back(std::move(source.path));
  }
  bool empty() const { return files_.empty(); }

  std::shared_ptr<const TokenFile> finish(std::uint64_t seed) const {
    // One whole file keeps its hash, with which checkpoints and caches know it.
    if (files_.size() == 1 && rows_.front().weight == 1) return files_.front();
    std::vector<RowChoice> chosen = mix_rows(rows_, seed);
    std::vector<bool> present(files_.size());
    for (const RowChoice& one : chosen) present[static_cast<std::size_t>(one.file)] = true;
    for (std::size_t i = 0; i < files_.size(); ++i) {
      if (present[i]) continue;
      refuse_data(store::StoreError::Kind::bad_input,
                  fmt::format("the weight {} of {} takes none of its {} rows; make it larger",
                              rows_[i].weight, paths_[i], rows_[i].rows));
    }
    return std::make_shared<const TokenFile>(files_, std::move(chosen));
  }

 private:
  std::vector<std::shared_ptr<const TokenFile>> files_;
  std::vector<MixedFile> rows_;
  std::vector<std::string> paths_;
};

}  // namespace

std::vector<DataFile> expanded_files(const std::vector<DataFile>& files, bool evaluation) {
  std::vector<DataFile> all;
  std::set<std::string> seen;
  for (const DataFile& file : files) {
    std::error_code none;
    std::vector<std::string> paths{file.path};
    if (fs::is_directory(file.path, none)) {
      paths = files_of_split(file.path, evaluation);
      // A file may have such characters in its name.
    } else if (!fs::exists(file.path, none) && file.path.find_first_of("*?[") != file.path.npos) {
      paths = matches_of(file.path);
    }
    for (std::string& path : paths) {
      if (!seen.insert(fs::absolute(path).lexically_normal().string()).second) {
        refuse_data(store::StoreError::Kind::bad_input,
                    fmt::format("{} is listed twice; list it once, with a weight", path));
      }
      all.push_back({std::move(path), file.weight});
    }
  }
  return all;
}

bool is_token_file(const fs::path& source) { return source.extension() == ".safetensors"; }

std::string recorded_tokenizer(const std::map<std::string, std::string>& metadata) {
  const auto hash = metadata.find("tokenizer_hash");
  if (hash != metadata.end()) return hash->second;
  const auto name = metadata.find("tokenizer");
  return name != metadata.end() && name->second == kByteTokenizer ? kByteTokenizer : "";
}

std::string tokenizer_identity(const std::string& tokenizer, const TokenizerOpener& tokenizers) {
  return tokenizer == kByteTokenizer ? kByteTokenizer : tokenizers.hash(tokenizer);
}

PreparedSplit read_split(const std::vector<DataFile>& files, const DataOptions& options,
                         const TokenizerOpener& tokenizers) {
  check_too_long(options);
  PreparedSplit split;
  PreparedData& training = split.training;
  training.files = expanded_files(files, options.evaluation);
  training.preferences = options.preferences;
  training.rated = options.rated;
  training.cached = true;
  FilePacker packer(options, tokenizers);
  Mix trained;
  Mix held;
  std::string identity;  // of the tokenizer in the options
  for (const DataFile& file : training.files) {
    PackedFile packed;
    if (is_token_file(file.path)) {
      packed = read_token_file(file.path, options);
      const auto& metadata = packed.tokens->metadata();
      const auto name = metadata.find("tokenizer");
      take_tokenizer(training, file.path, recorded_tokenizer(metadata),
                     name == metadata.end() ? "" : name->second);
    } else {
      // Hashing a tokenizer's files takes a while, and lists of token files need no tokenizer.
      if (identity.empty()) identity = tokenizer_identity(options.tokenizer, tokenizers);
      take_tokenizer(training, file.path, identity, name_of_tokenizer(options.tokenizer));
      const TokenCache cache(file.path, options, identity, tokenizers);
      std::optional<PackedFile> known = cache.read();
      if (!known) {
        training.cached = false;
        known = packer.pack(file.path);
        if (std::string removed = cache.write(*known); !removed.empty()) {
          training.removed.push_back(std::move(removed));
        }
      }
      packed = std::move(*known);
    }
    if (!packed.note.empty()) {
      training.notes.push_back(fmt::format("{}: {}", file.path, packed.note));
    }
    trained.add(std::move(packed.tokens), file);
    if (packed.held_out != nullptr) held.add(std::move(packed.held_out), {file.path});
  }
  training.is_token_file = training.files.size() == 1 && training.files.front().weight == 1 &&
                           is_token_file(training.files.front().path);
  training.tokens = trained.finish(options.seed);
  if (options.hold_out == 0) return split;
  if (held.empty()) {
    refuse_data(store::StoreError::Kind::bad_input,
                fmt::format("data.hold_out = {} takes none of the records of {}; make it larger, "
                            "or set data.eval to another file",
                            options.hold_out, training.name()));
  }
  split.held_out = training;
  // The notes are about the files and were given with the training rows.
  split.held_out->notes.clear();
  split.held_out->tokens = held.finish(options.seed);
  return split;
}

PreparedData read_data(const std::vector<DataFile>& files, DataOptions options,
                       const TokenizerOpener& tokenizers) {
  options.hold_out = 0;
  return read_split(files, options, tokenizers).training;
}

std::map<std::string, std::string> metadata_of(const PreparedData& data) {
  std::map<std::string, std::string> metadata{{"source", data.name()}};
  if (data.preferences) metadata[kDocuments] = documents_of(data.preferences, data.rated);
  if (!data.tokenizer_name.empty()) metadata["tokenizer"] = data.tokenizer_name;
  if (!data.tokenizer.empty() && data.tokenizer != kByteTokenizer) {
    metadata["tokenizer_hash"] = data.tokenizer;
  }
  return metadata;
}

fs::path place_data(const PreparedData& data, const fs::path& target) {
  if (data.is_token_file) return fs::absolute(data.files.front().path);
  store::make_directory(fs::absolute(target).parent_path());
  write_token_file(target, *data.tokens, metadata_of(data));
  return fs::absolute(target);
}

}  // namespace strait::data

#include "launcher/planner/data_preparation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cstdio>
#include <optional>
#include <utility>

#include "framework/store/atomic_file.h"
#include "framework/store/byte_tokenizer.h"
#include "framework/store/record_reader.h"
#include "framework/store/store_error.h"
#include "launcher/planner/token_cache.h"
#include "launcher/tokenizer/tokenizer_folder.h"
#include "launcher/tokenizer/tokenizer_worker.h"

namespace strait::planner {
namespace {

namespace fs = std::filesystem;

constexpr const char* kBytes = "bytes";

// How far a long file is, on a terminal.
class PreparationProgress {
 public:
  explicit PreparationProgress(const store::RecordReader& reader)
      : reader_(reader), shown_(isatty(STDERR_FILENO) != 0) {}
  PreparationProgress(const PreparationProgress&) = delete;
  PreparationProgress& operator=(const PreparationProgress&) = delete;
  ~PreparationProgress() {
    if (last_ >= 0) std::fputs("\r\033[K", stderr);
  }
  void show() {
    const int percent = static_cast<int>(reader_.bytes_read() * 100 / reader_.bytes());
    if (!shown_ || percent == last_) return;
    last_ = percent;
    std::fprintf(stderr, "\rtokenising: %d %%", percent);
  }

 private:
  const store::RecordReader& reader_;
  bool shown_;
  int last_ = -1;
};

std::size_t bytes_of(const store::Record& record) {
  std::size_t bytes = record.chat.size();
  for (const store::Piece& piece : record.pieces) bytes += piece.text.size();
  return bytes;
}

void pack_bytes(store::RecordReader& reader, store::Packer& packer, store::Targets targets) {
  while (std::optional<store::Record> record = reader.next()) {
    choose_targets(*record, targets);
    packer.add(store::ByteTokenizer::document(*record));
  }
}

void pack_tokens(store::RecordReader& reader, store::Packer& packer, const DataOptions& options) {
  tokenizer::TokenizerWorker worker(options.tokenizer);
  PreparationProgress progress(reader);
  std::vector<store::Record> batch;
  std::size_t bytes = 0;
  const auto flush = [&] {
    for (const store::Document& document : worker.documents(batch, options.targets)) {
      packer.add(document);
    }
    batch.clear();
    bytes = 0;
    progress.show();
  };
  while (std::optional<store::Record> record = reader.next()) {
    bytes += bytes_of(*record);
    batch.push_back(std::move(*record));
    if (bytes >= tokenizer::TokenizerWorker::kBatchBytes) flush();
  }
  if (!batch.empty()) flush();
}

std::string note_of(const store::LongDocuments& found, std::int64_t row) {
  std::vector<std::string> parts;
  if (found.dropped > 0) parts.push_back(fmt::format("{} dropped", found.dropped));
  if (found.truncated > 0) parts.push_back(fmt::format("{} truncated", found.truncated));
  if (found.split > 0) parts.push_back(fmt::format("{} split", found.split));
  if (parts.empty()) return "";
  return fmt::format("records longer than a row of {} tokens: {}", row, fmt::join(parts, ", "));
}

void pack(PreparedData& data, const DataOptions& options) {
  store::RecordReader reader(data.source);
  store::Packer packer(options.row, options.too_long);
  if (options.tokenizer == kBytes) {
    pack_bytes(reader, packer, options.targets);
  } else {
    pack_tokens(reader, packer, options);
  }
  data.note = note_of(packer.long_documents(), options.row);
  store::TokenRows rows = packer.finish();
  if (rows.rows() == 0) {
    throw store::StoreError(store::StoreError::Kind::bad_input,
                            fmt::format("{}: no record is left to train on{}", data.source.string(),
                                        data.note.empty() ? "" : fmt::format(" ({})", data.note)));
  }
  data.tokens = std::make_shared<const tensors::TokenFile>(std::move(rows), data.source.string());
}

void read_token_file(PreparedData& data, std::int64_t row) {
  data.tokens = std::make_shared<const tensors::TokenFile>(data.source);
  data.tokenizer = recorded_tokenizer(data.tokens->metadata());
  if (data.tokens->row_length() == row) return;
  throw store::StoreError(
      store::StoreError::Kind::bad_input,
      fmt::format("{} has rows of {} tokens, but the recipe says data.row = {}; make them equal",
                  data.source.string(), data.tokens->row_length(), row));
}

}  // namespace

std::string tokenizer_of(const recipe::Recipe& recipe) {
  if (!recipe.data.tokenizer.empty()) return recipe.data.tokenizer;
  return tokenizer::has_tokenizer(recipe.model.path) ? recipe.model.path : kBytes;
}

DataOptions data_options(const recipe::Recipe& recipe) {
  return {recipe.data.row, tokenizer_of(recipe), recipe.data.targets, recipe.data.too_long};
}

std::string recorded_tokenizer(const std::map<std::string, std::string>& metadata) {
  const auto hash = metadata.find("tokenizer_hash");
  if (hash != metadata.end()) return hash->second;
  const auto name = metadata.find("tokenizer");
  return name != metadata.end() && name->second == kBytes ? kBytes : "";
}

std::string tokenizer_identity(const std::string& tokenizer) {
  return tokenizer == kBytes ? kBytes : tokenizer::open_tokenizer(tokenizer).hash;
}

PreparedData read_data(const fs::path& source, const DataOptions& options) {
  PreparedData data;
  data.source = source;
  data.is_token_file = source.extension() == ".safetensors";
  if (data.is_token_file) {
    read_token_file(data, options.row);
    return data;
  }
  data.tokenizer = tokenizer_identity(options.tokenizer);
  if (options.tokenizer == kBytes) {
    data.tokenizer_name = kBytes;
    pack(data, options);
    return data;
  }
  data.tokenizer_name =
      (fs::absolute(options.tokenizer).lexically_normal() / "").parent_path().filename().string();
  const fs::path cache = cache_file(source, options, data.tokenizer);
  data.tokens = read_cache(cache);
  data.cached = data.tokens != nullptr;
  if (data.cached) {
    data.note = data.tokens->metadata().at("note");
  } else {
    pack(data, options);
    write_cache(cache, data);
  }
  return data;
}

fs::path place_data(const PreparedData& data, const fs::path& target) {
  if (data.is_token_file) return fs::absolute(data.source);
  store::make_directory(fs::absolute(target).parent_path());
  std::map<std::string, std::string> metadata{{"source", data.source.string()},
                                              {"tokenizer", data.tokenizer_name}};
  if (data.tokenizer != kBytes) metadata["tokenizer_hash"] = data.tokenizer;
  tensors::write_token_file(target, data.tokens->table(), metadata);
  return fs::absolute(target);
}

}  // namespace strait::planner

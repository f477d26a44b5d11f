#include "framework/data/file_packer.h"

#include <fcntl.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>

#include "framework/data/data_form.h"
#include "framework/data/token_cache.h"
#include "framework/store/store_error.h"

namespace strait::data {
namespace {

constexpr std::size_t kBytesOfToken = 9;  // of all three tables

FileDescriptor unnamed_file(const std::filesystem::path& folder) {
  std::string name = (folder / ".rows-XXXXXX").string();
  FileDescriptor file(::mkostemp(name.data(), O_CLOEXEC));
  if (!file.open()) throw store::system_error("create a file in", folder, errno);
  // Removed at once: the open descriptor keeps the file until the process ends.
  if (::unlink(name.c_str()) != 0) throw store::system_error("remove", name, errno);
  return file;
}

namespace fs = std::filesystem;

// Shows on a terminal how much of a long file has been read.
class PreparationProgress {
 public:
  explicit PreparationProgress(const RecordReader& reader)
      : reader_(reader), shown_(isatty(STDERR_FILENO) != 0) {}
  PreparationProgress(const PreparationProgress&) = delete;
  PreparationProgress& operator=(const PreparationProgress&) = delete;
  ~PreparationProgress() {
    if (last_ >= 0) std::fputs("\r\033[K", stderr);
  }
  void show(std::size_t further_tokens) {
    tokens_ += further_tokens;
    const int percent = static_cast<int>(reader_.bytes_read() * 100 / reader_.bytes());
    if (!shown_ || percent == last_) return;
    last_ = percent;
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start_;
    const double millions = static_cast<double>(tokens_) / 1e6;
    const std::string line = fmt::format("\r\033[Ktokenising: {} %, {:.1f} M tokens, {:.2f} M/s",
                                         percent, millions, millions / spent.count());
    std::fputs(line.c_str(), stderr);
  }

 private:
  const RecordReader& reader_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::size_t tokens_ = 0;
  bool shown_;
  int last_ = -1;
};

std::size_t bytes_of(const Record& record) {
  std::size_t bytes = record.chat.size();
  for (const Piece& piece : record.pieces) bytes += piece.text.size();
  return bytes;
}

void add_count(std::vector<std::string>& parts, std::int64_t count, const char* what) {
  if (count > 0) parts.push_back(fmt::format("{} {}", count, what));
}

}  // namespace

RowSpool::RowSpool(std::int64_t row_length, Folder folder, std::size_t memory)
    : find_folder_(std::move(folder)), memory_(memory) {
  held_.row_length = row_length;
}

void RowSpool::put(std::int64_t number, const PackedRow& row) {
  rows_ = std::max(rows_, number + 1);
  const auto length = static_cast<std::size_t>(held_.row_length);
  const auto end = static_cast<std::size_t>(rows_) * length;
  if (!files_[0].open() && end * kBytesOfToken > memory_) spill();
  if (files_[0].open()) {
    write(0, number, std::as_bytes(std::span(row.input_ids)));
    write(1, number, std::as_bytes(std::span(row.loss_mask)));
    write(2, number, std::as_bytes(std::span(row.document)));
    return;
  }
  if (held_.input_ids.size() < end) {
    held_.input_ids.resize(end);
    held_.loss_mask.resize(end);
    held_.document.resize(end);
  }
  const std::ptrdiff_t at = number * held_.row_length;
  std::ranges::copy(row.input_ids, held_.input_ids.begin() + at);
  std::ranges::copy(row.loss_mask, held_.loss_mask.begin() + at);
  std::ranges::copy(row.document, held_.document.begin() + at);
}

void RowSpool::spill() {
  folder_ = find_folder_();
  for (FileDescriptor& file : files_) file = unnamed_file(folder_);
  write(0, 0, std::as_bytes(std::span(held_.input_ids)));
  write(1, 0, std::as_bytes(std::span(held_.loss_mask)));
  write(2, 0, std::as_bytes(std::span(held_.document)));
  held_ =
      TokenRows{.row_length = held_.row_length, .input_ids = {}, .loss_mask = {}, .document = {}};
}

void RowSpool::write(std::size_t table, std::int64_t number, std::span<const std::byte> bytes) {
  const std::int64_t size_of_value = table == 1 ? 1 : 4;
  auto offset = static_cast<off_t>(number * held_.row_length * size_of_value);
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(files_[table].number(), bytes.data(), bytes.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      throw store::system_error("write rows of tokens (STRAIT_CACHE may name another directory) to",
                                folder_, errno);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += count;
  }
}

RowTables RowSpool::finish() {
  RowTables tables{.rows = std::exchange(rows_, 0), .row_length = held_.row_length};
  if (!files_[0].open()) {
    const auto held = std::make_shared<const TokenRows>(std::move(held_));
    tables.input_ids = held->input_ids;
    tables.loss_mask = held->loss_mask;
    tables.document = held->document;
    tables.memory = {held};
  } else {
    const auto size = static_cast<std::size_t>(tables.rows * tables.row_length);
    const auto map = [&](std::size_t table, std::size_t bytes) {
      tables.mappings.push_back(
          std::make_shared<const store::FileMapping>(files_[table], bytes, folder_));
      tables.memory.emplace_back(tables.mappings.back());
      return tables.mappings.back()->bytes().data();
    };
    tables.input_ids = {reinterpret_cast<const std::int32_t*>(map(0, size * 4)), size};
    tables.loss_mask = {reinterpret_cast<const std::uint8_t*>(map(1, size)), size};
    tables.document = {reinterpret_cast<const std::int32_t*>(map(2, size * 4)), size};
    for (FileDescriptor& file : files_) file = FileDescriptor();
  }
  held_ =
      TokenRows{.row_length = tables.row_length, .input_ids = {}, .loss_mask = {}, .document = {}};
  return tables;
}

// Divides records between training and evaluation.
class FilePacker::Split {
 public:
  explicit Split(const DataOptions& options)
      : options_(options), training_(options), evaluation_(options) {}

  // Where the document of a record goes.
  struct Side {
    Packer* packer;
    bool undesirable;
  };

  // The side that gets this record. Both answers of a preference are on one side.
  Side side_of(const Record& record) {
    if (options_.preferences && std::exchange(rejected_is_next_, !rejected_is_next_)) {
      return preferred_;
    }
    ++records_;
    const bool held =
        options_.hold_out > 0 && is_held_out(record, options_.hold_out, options_.seed);
    held_ += held ? 1 : 0;
    preferred_ = {&(held ? evaluation_ : training_).packer(), record.undesirable};
    return preferred_;
  }

  // Documents come in the order of the records.
  void add(Side side, Document document) {
    if (!options_.preferences) return side.packer->add(document);
    if (chosen_) {
      side.packer->add(joined(std::move(*chosen_), document));
      chosen_.reset();
    } else {
      if (options_.rated && side.undesirable) {
        for (std::uint8_t& mark : document.is_target) mark = mark == 0 ? 0 : 2;
      }
      chosen_ = std::move(document);
    }
  }

  // The tokenizer has no token to end texts and completions.
  void note_missing_end_token() { missing_end_token_ = true; }

  PackedFile finish(const fs::path& source) {
    PackedFile packed{training_.finish(source), evaluation_.finish(source), {}};
    std::vector<std::string> notes;
    std::vector<std::string> parts;
    add_count(parts, sum(&LongDocuments::dropped), "dropped");
    add_count(parts, sum(&LongDocuments::truncated), "truncated");
    add_count(parts, sum(&LongDocuments::split), "split");
    if (!parts.empty()) {
      notes.push_back(fmt::format("records longer than a row of {} tokens: {}", options_.rows.row,
                                  fmt::join(parts, ", ")));
    }
    const std::int64_t targetless = sum(&LongDocuments::pieces_without_target);
    if (targetless > 0) {
      notes.push_back(fmt::format("{} piece{} of records without a target left out", targetless,
                                  targetless == 1 ? "" : "s"));
    }
    if (options_.hold_out > 0) {
      notes.push_back(fmt::format("held out for evaluation: {} of {} records", held_, records_));
    }
    if (missing_end_token_) {
      notes.push_back(
          fmt::format("no token marks where a record ends, so the model does not learn to stop "
                      "there; name an eos_token in {}",
                      (fs::path(options_.tokenizer) / "tokenizer_config.json").string()));
    }
    // Last: it ends with a command.
    if (std::string note = note_on_table(source); !note.empty()) notes.push_back(std::move(note));
    packed.note = fmt::format("{}", fmt::join(notes, "; "));
    if (packed.tokens == nullptr) {
      throw store::StoreError(store::StoreError::Kind::bad_input, "{}: no record is left to {}{}",
                              source.string(), options_.evaluation ? "evaluate" : "train on",
                              packed.note.empty() ? "" : fmt::format(" ({})", packed.note));
    }
    return packed;
  }

 private:
  std::int64_t sum(std::int64_t LongDocuments::*member) {
    return training_.packer().long_documents().*member +
           evaluation_.packer().long_documents().*member;
  }

  // Packed rows that are written to a token file.
  class Rows {
   public:
    explicit Rows(const DataOptions& options)
        : spool_(options.rows.row, spool_folder),
          packer_(options.rows,
                  [this](std::int64_t number, const PackedRow& row) { spool_.put(number, row); }) {}
    Rows(const Rows&) = delete;
    Rows& operator=(const Rows&) = delete;

    Packer& packer() { return packer_; }

    // Null: there are none.
    std::shared_ptr<const TokenFile> finish(const fs::path& source) {
      packer_.finish();
      if (packer_.rows() == 0) return nullptr;
      return std::make_shared<const TokenFile>(spool_.finish(), source.string());
    }

   private:
    RowSpool spool_;
    Packer packer_;
  };

  static Document joined(Document chosen, const Document& rejected) {
    chosen.second = chosen.tokens.size();
    chosen.tokens.insert(chosen.tokens.end(), rejected.tokens.begin(), rejected.tokens.end());
    chosen.is_target.insert(chosen.is_target.end(), rejected.is_target.begin(),
                            rejected.is_target.end());
    return chosen;
  }

  const DataOptions& options_;
  Side preferred_{};                // what the last chosen answer goes to
  bool rejected_is_next_ = false;   // among the records
  std::optional<Document> chosen_;  // waits for the rejected answer
  Rows training_;
  Rows evaluation_;
  std::int64_t records_ = 0;
  std::int64_t held_ = 0;
  bool missing_end_token_ = false;
};

PackedFile FilePacker::pack(const fs::path& source) {
  RecordReader reader(source, tokenizers_, options_.preferences, options_.rated);
  if (options_.hold_out > 0 && reader.is_text()) {
    throw store::StoreError(
        store::StoreError::Kind::bad_input,
        "{} is one text, so data.hold_out has no records to choose from; write it as "
        "JSONL with a \"text\" on each line, or set data.eval to another file",
        source.string());
  }
  Split split(options_);
  if (options_.tokenizer == kByteTokenizer) {
    pack_bytes(reader, split);
  } else {
    pack_tokens(reader, split);
  }
  return split.finish(source);
}

void FilePacker::pack_bytes(RecordReader& reader, Split& split) const {
  while (std::optional<Record> record = reader.next()) {
    const Split::Side side = split.side_of(*record);
    choose_targets(*record, options_.targets);
    split.add(side, ByteTokenizer::document(*record));
  }
}

void FilePacker::pack_tokens(RecordReader& reader, Split& split) {
  if (tokenizer_ == nullptr) tokenizer_ = tokenizers_.start(options_.tokenizer);
  PreparationProgress progress(reader);
  std::vector<Record> batch;
  std::deque<Split::Side> sides;  // of each record that is read and not packed
  std::size_t bytes = 0;
  const auto receive = [&] {
    std::size_t tokens = 0;
    for (Document& document : tokenizer_->receive()) {
      tokens += document.tokens.size();
      split.add(sides.front(), std::move(document));
      sides.pop_front();
    }
    progress.show(tokens);
  };
  const auto send = [&] {
    if (tokenizer_->sent() == Tokenizer::kAhead) receive();
    tokenizer_->send(batch, options_.targets);
    batch.clear();
    bytes = 0;
  };
  while (std::optional<Record> record = reader.next()) {
    bytes += bytes_of(*record);
    if (!reader.is_text() && record->chat.empty() && !tokenizer_->ends_records())
      split.note_missing_end_token();
    sides.push_back(split.side_of(*record));
    batch.push_back(std::move(*record));
    if (bytes >= Tokenizer::kBatchBytes) send();
  }
  if (!batch.empty()) send();
  while (tokenizer_->sent() > 0) receive();
}

}  // namespace strait::data

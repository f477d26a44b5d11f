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

namespace fs = std::filesystem;

// Shows how much of a long file has been read: on a terminal in place, else a line now and then.
class FilePacker::Progress {
 public:
  Progress(const RecordReader& reader, const fs::path& source)
      : reader_(reader), live_(isatty(STDERR_FILENO) != 0) {
    preparation_.file = source.filename().string();
    preparation_.bytes = reader.bytes();
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() {
    if (live_ && shown_) std::fputs("\r\033[K", stderr);
  }
  void add_record(std::size_t tokens) {
    ++preparation_.records;
    preparation_.tokens += tokens;
    const auto now = Clock::now();
    if (now - last_ < (live_ ? (shown_ ? kLiveEvery : kLiveFirst) : kLineEvery)) return;
    last_ = now;
    shown_ = true;
    preparation_.bytes_read = reader_.bytes_read();
    preparation_.seconds = std::chrono::duration<double>(now - start_).count();
    const std::string text = preparation_text(preparation_);
    std::fputs((live_ ? "\r\033[K" + text : text + "\n").c_str(), stderr);
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kLiveFirst{2'000};
  static constexpr std::chrono::milliseconds kLiveEvery{200};
  static constexpr std::chrono::milliseconds kLineEvery{5'000};

  const RecordReader& reader_;
  const bool live_;
  Preparation preparation_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_ = start_;  // also before the first
  bool shown_ = false;
};

namespace {

std::size_t bytes_of(const Record& record) {
  std::size_t bytes = record.chat.size();
  for (const Piece& piece : record.pieces) bytes += piece.text.size();
  return bytes;
}

void add_count(std::vector<std::string>& parts, std::int64_t count, const char* what) {
  if (count > 0) parts.push_back(fmt::format("{} {}", count, what));
}

}  // namespace

std::string preparation_text(const Preparation& at) {
  constexpr double kMega = 1e6;
  const auto read = static_cast<double>(std::min(at.bytes_read, at.bytes));
  const auto all = static_cast<double>(std::max<std::uint64_t>(at.bytes, 1));
  std::string text =
      fmt::format("reading {}: {} records, {:.1f} M tokens, {:.1f} of {:.1f} MB ({:.0f} %)",
                  at.file, at.records, static_cast<double>(at.tokens) / kMega, read / kMega,
                  all / kMega, 100 * read / all);
  if (read > 0) text += fmt::format(", {:.0f} s left", at.seconds * (all - read) / read);
  return text;
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
  Progress progress(reader, source);
  if (options_.tokenizer == kByteTokenizer) {
    pack_bytes(reader, split, progress);
  } else {
    pack_tokens(reader, split, progress);
  }
  return split.finish(source);
}

void FilePacker::pack_bytes(RecordReader& reader, Split& split, Progress& progress) const {
  while (std::optional<Record> record = reader.next()) {
    const Split::Side side = split.side_of(*record);
    choose_targets(*record, options_.targets);
    Document document = ByteTokenizer::document(*record);
    progress.add_record(document.tokens.size());
    split.add(side, std::move(document));
  }
}

void FilePacker::pack_tokens(RecordReader& reader, Split& split, Progress& progress) {
  if (tokenizer_ == nullptr) tokenizer_ = tokenizers_.start(options_.tokenizer);
  std::vector<Record> batch;
  std::deque<Split::Side> sides;  // of each record that is read and not packed
  std::size_t bytes = 0;
  const auto receive = [&] {
    for (Document& document : tokenizer_->receive()) {
      progress.add_record(document.tokens.size());
      split.add(sides.front(), std::move(document));
      sides.pop_front();
    }
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

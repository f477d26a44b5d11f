#include "launcher/tokenizer/tokenizer_worker.h"

namespace strait::tokenizer {
namespace {

// A Parquet file, whose rows the process sends as lines of JSONL, 4 MiB at a time. While they are
// used it reads the next ones.
class ParquetTable final : public data::TableReader {
 public:
  explicit ParquetTable(const std::filesystem::path& file)
      : worker_(fmt::format("the process that reads {}", file.string()), std::chrono::minutes(5)) {
    worker_.ask(nlohmann::json{{"do", "table"}, {"file", file.string()}}.dump());
    worker_.write(kRows);
  }

  std::optional<std::string> next() override {
    if (at_ == rows_.size() && !ended_) receive();
    if (at_ == rows_.size()) return std::nullopt;
    return std::move(rows_[at_++]);
  }

  double share_read() const override { return share_; }

 private:
  static constexpr const char* kRows = R"({"do":"rows"})";

  void receive() {
    const PythonWorker::Answer answer = worker_.read();
    worker_.understand([&] {
      answer.head.at("rows").get_to(rows_);
      answer.head.at("share").get_to(share_);
    });
    at_ = 0;
    ended_ = rows_.empty();
    if (!ended_) worker_.write(kRows);
  }

  PythonWorker worker_;
  std::vector<std::string> rows_;
  std::size_t at_ = 0;  // the next one of them
  bool ended_ = false;
  double share_ = 0;
};

}  // namespace

std::unique_ptr<data::TableReader> PythonTokenizers::open_table(
    const std::filesystem::path& file) const {
  return std::make_unique<ParquetTable>(file);
}

}  // namespace strait::tokenizer

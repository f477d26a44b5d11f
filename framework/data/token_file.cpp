#include "framework/data/token_file.h"

#include <algorithm>
#include <stdexcept>

#include "framework/store/atomic_file.h"
#include "framework/store/file_progress.h"
#include "framework/store/safetensors_file.h"
#include "framework/store/store_error.h"

namespace strait::data {
namespace {

[[noreturn]] void refuse_tokens(const std::string& name, const std::string& why) {
  throw store::StoreError(store::StoreError::Kind::bad_input, name + ": " + why);
}

template <typename T>
std::span<const T> map_table(const store::SafetensorsFile& reader, RowTables& tables,
                             const std::string& tensor, store::Dtype dtype,
                             const std::vector<std::int64_t>& shape) {
  const store::TensorInfo& info = reader.info(tensor);
  if (info.dtype != dtype || info.shape != shape) {
    store::TensorInfo wanted = info;
    wanted.dtype = dtype;
    wanted.shape = shape;
    refuse_tokens(reader.path().string(),
                  fmt::format("tensor \"{}\" is {}, expected {}", tensor, store::describe(info),
                              store::describe(wanted)));
  }
  const std::size_t count = info.bytes() / sizeof(T);
  const std::byte* const bytes = tables.mappings.front()->bytes().data() + reader.offset(info);
  if (reader.offset(info) % alignof(T) == 0) return {reinterpret_cast<const T*>(bytes), count};
  // Other writers need not align their tensors, and unaligned access is undefined, so copy.
  const auto copy = std::make_shared<std::vector<T>>(count);
  reader.read(info, std::as_writable_bytes(std::span(*copy)));
  tables.memory.emplace_back(copy);
  return *copy;
}

RowTables map_rows(const store::SafetensorsFile& reader) {
  const std::string name = reader.path().string();
  if (reader.find("input_ids") == nullptr) {
    refuse_tokens(name, "it is not a token file: there is no tensor \"input_ids\"");
  }
  const std::vector<std::int64_t> shape = reader.info("input_ids").shape;
  if (shape.size() != 2 || shape[0] < 1 || shape[1] < 2) {
    refuse_tokens(name, fmt::format("tensor \"input_ids\" is {}, expected I32 [rows, row] with at "
                                    "least one row of at least two tokens",
                                    store::describe(reader.info("input_ids"))));
  }
  RowTables tables{.rows = shape[0], .row_length = shape[1]};
  tables.mappings = {reader.map()};
  tables.memory = {tables.mappings.front()};
  tables.input_ids = map_table<std::int32_t>(reader, tables, "input_ids", store::Dtype::i32, shape);
  if (reader.find("loss_mask") != nullptr) {
    tables.loss_mask =
        map_table<std::uint8_t>(reader, tables, "loss_mask", store::Dtype::u8, shape);
  }
  if (reader.find("document") != nullptr) {
    tables.document = map_table<std::int32_t>(reader, tables, "document", store::Dtype::i32, shape);
  }
  return tables;
}

// The first error of a row; empty: none.
std::string fault_of_row(std::span<const std::int32_t> tokens, std::span<const std::uint8_t> mask,
                         std::span<const std::int32_t> documents) {
  std::int32_t before = 0;
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    if (tokens[t] < 0) return fmt::format("token {} at place {} is negative", tokens[t], t);
    if (mask[t] > 2) return fmt::format("loss_mask {} at place {} is above 2", mask[t], t);
    const std::int32_t document = documents[t];
    if (document < -1) return fmt::format("document {} at place {} is below -1", document, t);
    // Code that walks a row stops at the first padding.
    if (before == -1 && document != -1) {
      return fmt::format("document {} at place {} follows padding (-1)", document, t);
    }
    if (document != -1 && document < before) {
      return fmt::format("document {} at place {} follows document {}: numbers must not fall",
                         document, t, before);
    }
    if (t == 0 && document == -1) return "it holds nothing but padding";
    before = document;
  }
  return {};
}

RowTables held_tables(TokenRows rows) {
  const auto held = std::make_shared<const TokenRows>(std::move(rows));
  return {.rows = held->rows(),
          .row_length = held->row_length,
          .input_ids = held->input_ids,
          .loss_mask = held->loss_mask,
          .document = held->document,
          .memory = {held}};
}

// While a large file is read from end to end, its pages are released after this many tokens.
constexpr std::size_t kReleaseTokens = std::size_t{16} << 20U;

}  // namespace

TokenFile::TokenFile(const std::filesystem::path& path) {
  const store::SafetensorsFile reader(path);
  tables_ = map_rows(reader);
  metadata_ = reader.metadata();
  validate(path.string());
}

TokenFile::TokenFile(RowTables tables, const std::string& name) : tables_(std::move(tables)) {
  const auto expected = static_cast<std::size_t>(tables_.rows * tables_.row_length);
  if (tables_.rows < 1 || tables_.row_length < 2 || tables_.input_ids.size() != expected ||
      tables_.loss_mask.size() != expected || tables_.document.size() != expected) {
    refuse_tokens(name,
                  fmt::format("{} tokens, {} masks and {} document numbers do not make rows of {}",
                              tables_.input_ids.size(), tables_.loss_mask.size(),
                              tables_.document.size(), tables_.row_length));
  }
  validate(name);
}

TokenFile::TokenFile(TokenRows rows, const std::string& name)
    : TokenFile(held_tables(std::move(rows)), name) {}

TokenFile::TokenFile(std::vector<std::shared_ptr<const TokenFile>> files,
                     std::vector<RowChoice> choices)
    : files_(std::move(files)), choices_(std::move(choices)) {
  tables_.row_length = files_.front()->row_length();
  for (const auto& file : files_) {
    if (file->row_length() != row_length()) {
      throw std::invalid_argument(fmt::format("rows of {} and of {} tokens in one data set",
                                              row_length(), file->row_length()));
    }
    largest_token_ = std::max(largest_token_, file->largest_token());
  }
  compute_hash();
}

void TokenFile::validate(const std::string& name) {
  const auto length = static_cast<std::size_t>(row_length());
  // One row of defaults serves all rows of a file without this table.
  if (tables_.loss_mask.empty()) all_ones_.assign(length, 1);
  if (tables_.document.empty()) all_zeros_.assign(length, 0);
  for (std::int64_t row = 0; row < rows(); ++row) {
    const store::SampleId sample{row};
    const std::string fault = fault_of_row(tokens(sample), loss_mask(sample), documents(sample));
    if (!fault.empty()) refuse_tokens(name, fmt::format("row {}: {}", row, fault));
    const auto ids = tokens(sample);
    largest_token_ = std::max(largest_token_, *std::max_element(ids.begin(), ids.end()));
    count_progress(row, length);
  }
  compute_hash();
}

// Covers the three tables one after the other, as they are in memory.
void TokenFile::compute_hash() {
  store::FileHash hash;
  hash.update(std::as_bytes(std::span(&tables_.row_length, 1)));
  const auto each_row = [&](const auto& row_of_table) {
    for (std::int64_t row = 0; row < rows(); ++row) {
      hash.update(std::as_bytes(row_of_table(store::SampleId{row})));
      count_progress(row, static_cast<std::size_t>(row_length()));
    }
  };
  each_row([this](store::SampleId sample) { return tokens(sample); });
  each_row([this](store::SampleId sample) { return loss_mask(sample); });
  each_row([this](store::SampleId sample) { return documents(sample); });
  hash_ = hash.hex();
}

void TokenFile::count_progress(std::int64_t row, std::size_t length) const {
  store::file_progress() += length;
  const auto rows_of_window = static_cast<std::int64_t>(kReleaseTokens / length) + 1;
  // Read pages count as this process's memory under a control group until they are released.
  if ((row + 1) % rows_of_window != 0 && row + 1 != rows()) return;
  for (const auto& mapping : tables_.mappings) mapping->release_pages();
  for (const auto& file : files_) {
    for (const auto& mapping : file->tables_.mappings) mapping->release_pages();
  }
}

std::int64_t TokenFile::rows() const {
  return files_.empty() ? tables_.rows : std::ssize(choices_);
}

std::size_t TokenFile::start(store::SampleId sample) const {
  return static_cast<std::size_t>(number(sample) * row_length());
}

const RowChoice* TokenFile::choice(store::SampleId sample) const {
  if (number(sample) < 0 || number(sample) >= rows()) {
    throw std::out_of_range(fmt::format("sample {} of {} rows", number(sample), rows()));
  }
  return files_.empty() ? nullptr : &choices_[static_cast<std::size_t>(number(sample))];
}

std::span<const std::int32_t> TokenFile::tokens(store::SampleId sample) const {
  if (const auto* chosen = choice(sample)) {
    return files_[static_cast<std::size_t>(chosen->file)]->tokens(store::SampleId{chosen->row});
  }
  return tables_.input_ids.subspan(start(sample), static_cast<std::size_t>(row_length()));
}

std::span<const std::uint8_t> TokenFile::loss_mask(store::SampleId sample) const {
  if (const auto* chosen = choice(sample)) {
    return files_[static_cast<std::size_t>(chosen->file)]->loss_mask(store::SampleId{chosen->row});
  }
  if (tables_.loss_mask.empty()) return all_ones_;
  return tables_.loss_mask.subspan(start(sample), static_cast<std::size_t>(row_length()));
}

std::span<const std::int32_t> TokenFile::documents(store::SampleId sample) const {
  if (const auto* chosen = choice(sample)) {
    return files_[static_cast<std::size_t>(chosen->file)]->documents(store::SampleId{chosen->row});
  }
  if (tables_.document.empty()) return all_zeros_;
  return tables_.document.subspan(start(sample), static_cast<std::size_t>(row_length()));
}

std::int64_t TokenFile::length(store::SampleId sample) const {
  const std::span<const std::int32_t> numbers = documents(sample);
  return std::find(numbers.begin(), numbers.end(), -1) - numbers.begin();
}

std::vector<std::int64_t> TokenFile::document_lengths(store::SampleId sample) const {
  const std::span<const std::int32_t> numbers = documents(sample);
  std::vector<std::int64_t> lengths;
  for (std::size_t t = 0; t < numbers.size() && numbers[t] != -1; ++t) {
    if (t == 0 || numbers[t] != numbers[t - 1]) lengths.push_back(0);
    ++lengths.back();
  }
  return lengths;
}

std::vector<std::int64_t> TokenFile::targets(store::SampleId sample) const {
  const std::span<const std::int32_t> numbers = documents(sample);
  const std::span<const std::uint8_t> mask = loss_mask(sample);
  std::vector<std::int64_t> places;
  for (std::size_t t = 1; t < numbers.size() && numbers[t] != -1; ++t) {
    // The first token of a document has nothing before it that could predict it.
    if (mask[t] != 0 && numbers[t] == numbers[t - 1]) {
      places.push_back(static_cast<std::int64_t>(t));
    }
  }
  return places;
}

store::FileSummary write_token_file(const std::filesystem::path& path, const TokenFile& rows,
                                    const std::map<std::string, std::string>& metadata,
                                    std::int64_t first, std::int64_t count) {
  // In the order of write_safetensors(), so that equal rows give equal bytes.
  store::SafetensorsHeader header;
  header.metadata = metadata;
  header.metadata["format"] = "pt";
  const std::vector<std::int64_t> shape{count, rows.row_length()};
  const auto values = static_cast<std::uint64_t>(count * rows.row_length());
  header.tensors = {{"document", store::Dtype::i32, shape, 0, 4 * values},
                    {"input_ids", store::Dtype::i32, shape, 4 * values, 8 * values},
                    {"loss_mask", store::Dtype::u8, shape, 8 * values, 9 * values}};
  const std::string text = header.format();
  store::AtomicFile file(path, text.size() + 9 * values);
  std::vector<std::byte> piece;
  const auto write = [&](std::span<const std::byte> bytes) {
    piece.insert(piece.end(), bytes.begin(), bytes.end());
    if (piece.size() < store::kFilePiece) return;
    file.write(piece);
    piece.clear();
  };
  write(std::as_bytes(std::span(text)));
  const auto each_row = [&](const auto& row_of_table) {
    for (std::int64_t row = first; row < first + count; ++row) {
      write(std::as_bytes(row_of_table(store::SampleId{row})));
    }
  };
  each_row([&](store::SampleId sample) { return rows.documents(sample); });
  each_row([&](store::SampleId sample) { return rows.tokens(sample); });
  each_row([&](store::SampleId sample) { return rows.loss_mask(sample); });
  file.write(piece);
  return file.commit();
}

store::FileSummary write_token_file(const std::filesystem::path& path, const TokenFile& rows,
                                    const std::map<std::string, std::string>& metadata) {
  return write_token_file(path, rows, metadata, 0, rows.rows());
}

}  // namespace strait::data

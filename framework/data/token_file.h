#pragma once

#include <map>

#include "framework/data/sample_order.h"
#include "framework/data/token_rows.h"
#include "framework/store/file_hash.h"
#include "framework/store/sample.h"

namespace strait::data {

// Packed training rows that were checked. The file is safetensors, and anyone may write one:
// - input_ids: int32 [rows, row], the tokens, each 0 or more.
// - loss_mask: uint8 [rows, row], optional: 1 where the token is a target, 2 where it is one of an
//   undesirable answer; absent: 1 everywhere.
// - document: int32 [rows, row], optional: attention and positions do not cross document numbers.
//   They are 0 or more and never decrease in a row; -1 marks the padding at the row's end. Absent:
//   each row is one document without padding.
//
// A row of padding only is refused. Files are mapped, not loaded. Immutable: any thread may read.
class TokenFile {
 public:
  explicit TokenFile(const std::filesystem::path& path);
  // The same checks for rows that are elsewhere; `name` is for messages.
  TokenFile(RowTables tables, const std::string& name);
  TokenFile(TokenRows rows, const std::string& name);
  // Rows of several files, as if they were one: row `row` of files[file] for each choice. The files
  // have rows of one length.
  TokenFile(std::vector<std::shared_ptr<const TokenFile>> files, std::vector<RowChoice> choices);

  std::int64_t rows() const;
  std::int64_t row_length() const { return tables_.row_length; }
  std::int32_t largest_token() const { return largest_token_; }
  // Hash of the content; independent of how the file was written.
  const std::string& hash() const { return hash_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  std::span<const std::int32_t> tokens(store::SampleId sample) const;
  std::span<const std::uint8_t> loss_mask(store::SampleId sample) const;
  std::span<const std::int32_t> documents(store::SampleId sample) const;

  std::int64_t length(store::SampleId sample) const;  // without padding
  // Their sum is length().
  std::vector<std::int64_t> document_lengths(store::SampleId sample) const;

  // The positions of the row's tokens that count in the loss: masked in, not padding, and not the
  // first of their document, which nothing predicts.
  std::vector<std::int64_t> targets(store::SampleId sample) const;

 private:
  void validate(const std::string& name);
  void compute_hash();
  // Called in a pass over all rows: reports progress to the watchdog, and releases pages from time
  // to time.
  void count_progress(std::int64_t row, std::size_t length) const;
  std::size_t start(store::SampleId sample) const;
  // The row's file and number if there are several files; null: there is one. std::out_of_range.
  const RowChoice* choice(store::SampleId sample) const;

  RowTables tables_;                     // with several files: only the row length
  std::vector<std::uint8_t> all_ones_;   // used for an absent loss_mask
  std::vector<std::int32_t> all_zeros_;  // used for an absent document
  std::vector<std::shared_ptr<const TokenFile>> files_;
  std::vector<RowChoice> choices_;
  std::int32_t largest_token_ = 0;
  std::string hash_;
  std::map<std::string, std::string> metadata_;
};

// Writes rows `first` to `first + count` - 1 in pieces, so that they may exceed the memory. The
// file is either complete and durable or does not exist.
store::FileSummary write_token_file(const std::filesystem::path& path, const TokenFile& rows,
                                    const std::map<std::string, std::string>& metadata,
                                    std::int64_t first, std::int64_t count);
store::FileSummary write_token_file(const std::filesystem::path& path, const TokenFile& rows,
                                    const std::map<std::string, std::string>& metadata = {});

}  // namespace strait::data

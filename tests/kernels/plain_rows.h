#pragma once

#include <vector>

#include "kernels/group_format.h"

// The operations of the quantising kernels written down a second time, one value after the other
// and straight from kernels/QUANTIZED.md: this defines the bits. Shares nothing with kernels/ but
// the layout's constants.
namespace strait::kernels::plain {

// Elements and floats; float16 saturates.
std::vector<float> read_values(const Values& values);
void write_values(const MutableValues& out, const std::vector<float>& floats);

void quantize(const Values& values, const GroupFormat& format, const Draw& draw, std::byte* out,
              SquareSums* sums);
void dequantize(const std::byte* in, const GroupFormat& format, const MutableValues& out);
void quantize_change(const Values& values, const GroupFormat& format, const Draw& draw, bool fresh,
                     std::byte* entry, std::byte* out, SquareSums* sums);
void apply_change(const std::byte* in, const GroupFormat& format, bool fresh, std::byte* entry,
                  const MutableValues& out);
void store_entry(const Values& values, std::byte* entry);
void load_entry(const std::byte* entry, const MutableValues& out);

}  // namespace strait::kernels::plain

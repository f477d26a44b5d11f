// Values of any element type as lanes of float. Included once per instruction set (Highway), so
// instead of #pragma once the guard is toggled with the set.
#if defined(STRAIT_KERNELS_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STRAIT_KERNELS_LANES_INL_H_
#undef STRAIT_KERNELS_LANES_INL_H_
#else
#define STRAIT_KERNELS_LANES_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "kernels/half_bits.h"

HWY_BEFORE_NAMESPACE();
namespace strait::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The narrowest group has two of the widest vectors, so whole groups are whole vectors.
using Lanes = hn::CappedTag<float, 16>;
using BitLanes = hn::Rebind<std::uint32_t, Lanes>;
using CountLanes = hn::Rebind<std::int32_t, Lanes>;
using HalfLanes = hn::Rebind<std::uint16_t, Lanes>;
using ByteLanes = hn::Rebind<std::uint8_t, Lanes>;
using Vector = hn::Vec<Lanes>;
constexpr std::int64_t kMostLanes = 16;

// There is no entry: zeros.
struct NoBase {};

HWY_INLINE std::int64_t lane_count() { return static_cast<std::int64_t>(hn::Lanes(Lanes())); }

HWY_INLINE Vector load_lanes(const float* from) { return hn::LoadU(Lanes(), from); }

// 16-bit numbers may be at any address, because payloads have odd lengths.
template <class T>
HWY_INLINE hn::Vec<HalfLanes> load_halves(const T* from) {
#if HWY_TARGET == HWY_SCALAR
  std::uint16_t half = 0;
  std::memcpy(&half, from, sizeof(half));
  return hn::Set(HalfLanes(), half);
#else
  return hn::LoadU(HalfLanes(), reinterpret_cast<const std::uint16_t*>(from));
#endif
}

template <class T>
HWY_INLINE void store_halves(hn::Vec<HalfLanes> halves, T* to) {
#if HWY_TARGET == HWY_SCALAR
  const std::uint16_t half = hn::GetLane(halves);
  std::memcpy(to, &half, sizeof(half));
#else
  hn::StoreU(halves, HalfLanes(), reinterpret_cast<std::uint16_t*>(to));
#endif
}

HWY_INLINE Vector load_lanes(const Bfloat16* from) {
  const auto bits = hn::PromoteTo(BitLanes(), load_halves(from));
  return hn::BitCast(Lanes(), hn::ShiftLeft<16>(bits));
}

HWY_INLINE Vector load_lanes(const Float16* from) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
  const hn::Rebind<hwy::float16_t, Lanes> halves;
  return hn::PromoteTo(Lanes(), hn::BitCast(halves, load_halves(from)));
#else
  HWY_ALIGN float values[kMostLanes];
  for (std::int64_t i = 0; i < lane_count(); ++i) values[i] = float_of(from[i]);
  return hn::Load(Lanes(), values);
#endif
}

HWY_INLINE void store_lanes(Vector values, float* to) { hn::StoreU(values, Lanes(), to); }

// To nearest, ties to even; the input has no NaN.
HWY_INLINE hn::Vec<BitLanes> rounded_to_bfloat16(Vector values) {
  const BitLanes bits;
  const auto all = hn::BitCast(bits, values);
  const auto odd = hn::And(hn::ShiftRight<16>(all), hn::Set(bits, 1));
  return hn::ShiftRight<16>(hn::Add(hn::Add(all, hn::Set(bits, 0x7FFF)), odd));
}

HWY_INLINE void store_lanes(Vector values, Bfloat16* to) {
  store_halves(hn::TruncateTo(HalfLanes(), rounded_to_bfloat16(values)), to);
}

HWY_INLINE void store_lanes(Vector values, Float16* to) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
  const hn::Rebind<hwy::float16_t, Lanes> halves;
  const auto bound = hn::Set(Lanes(), 65504.0F);
  const auto clamped = hn::Max(hn::Min(values, bound), hn::Neg(bound));
  store_halves(hn::BitCast(HalfLanes(), hn::DemoteTo(halves, clamped)), to);
#else
  HWY_ALIGN float scalars[kMostLanes];
  hn::Store(values, Lanes(), scalars);
  for (std::int64_t i = 0; i < lane_count(); ++i) to[i] = float16_of(scalars[i]);
#endif
}

// The first `count` lanes of a vector; the others are zero, and are not written.
template <class T>
HWY_INLINE Vector load_upto(const T* from, std::int64_t count) {
  if (count >= lane_count()) return load_lanes(from);
  T some[kMostLanes] = {};
  std::memcpy(some, from, static_cast<std::size_t>(count) * sizeof(T));
  return load_lanes(some);
}
HWY_INLINE Vector load_upto(NoBase /*from*/, std::int64_t /*count*/) { return hn::Zero(Lanes()); }

template <class T>
HWY_INLINE void store_upto(Vector values, T* to, std::int64_t count) {
  if (count >= lane_count()) return store_lanes(values, to);
  T some[kMostLanes];
  store_lanes(values, some);
  std::memcpy(to, some, static_cast<std::size_t>(count) * sizeof(T));
}

HWY_INLINE NoBase advanced(NoBase base, std::int64_t /*by*/) { return base; }
template <class T>
HWY_INLINE T* advanced(T* base, std::int64_t by) {
  return base + by;
}

HWY_INLINE float sum_of(Vector values) { return hn::GetLane(hn::SumOfLanes(Lanes(), values)); }

}  // namespace strait::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

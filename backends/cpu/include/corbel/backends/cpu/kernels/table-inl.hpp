// The level's table: constant data, nothing runs at start-up.

inline constexpr KernelTable kTable = {
    &quantize_row,
    {&linear<DType::kF32>, &linear<DType::kF16>, &linear<DType::kBF16>, &linear<DType::kQ4_0>, &linear<DType::kQ4_1>,
     &linear<DType::kQ5_0>, &linear<DType::kQ5_1>, &linear<DType::kQ8_0>, &linear<DType::kQ2_K>, &linear<DType::kQ3_K>,
     &linear<DType::kQ4_K>, &linear<DType::kQ5_K>, &linear<DType::kQ6_K>},
    {&attention<hal::KvType::kF32>, &attention<hal::KvType::kBF16>, &attention<hal::KvType::kF16>},
    {&kv_append<hal::KvType::kF32>, &kv_append<hal::KvType::kBF16>, &kv_append<hal::KvType::kF16>},
    &norm_row,
    &rope_head,
    &activation_row,
    &add_row,
    &scale_row,
    &softcap_row,
};

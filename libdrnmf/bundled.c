/* The model's file DRNMF_MODEL_FILE as a part of the program. `drnmf.c` uses it if DRNMF_BUNDLED is defined. */

#ifdef __APPLE__
__asm__(".const_data\n.balign 64\n.globl _drnmf_bundled\n.globl _drnmf_bundled_end\n"
        ".private_extern _drnmf_bundled\n.private_extern _drnmf_bundled_end\n"
        "_drnmf_bundled: .incbin \"" DRNMF_MODEL_FILE "\"\n_drnmf_bundled_end: .byte 0\n");
#else
__asm__(".section .rodata\n.balign 64\n.globl drnmf_bundled\n.globl drnmf_bundled_end\n"
        ".hidden drnmf_bundled\n.hidden drnmf_bundled_end\n"
        "drnmf_bundled: .incbin \"" DRNMF_MODEL_FILE "\"\ndrnmf_bundled_end: .byte 0\n.previous\n");
#endif

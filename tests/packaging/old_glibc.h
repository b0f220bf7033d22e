/* Links the kernels to functions as old glibc has them, so that the wheel runs there, too.

   A linker takes the newest version of each symbol. Threads moved into libc.so in 2.34, and 2.29
   has an exp that does not set errno, which no kernel reads. `wheels.py` includes this file before
   `kernels.c`. */
__asm__(".symver exp, exp@GLIBC_2.2.5");
__asm__(".symver log, log@GLIBC_2.2.5");
__asm__(".symver logf, logf@GLIBC_2.2.5");
__asm__(".symver pthread_create, pthread_create@GLIBC_2.2.5");
__asm__(".symver pthread_detach, pthread_detach@GLIBC_2.2.5");
__asm__(".symver pthread_mutex_trylock, pthread_mutex_trylock@GLIBC_2.2.5");
